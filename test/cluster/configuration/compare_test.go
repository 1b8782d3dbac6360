package configuration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"sluice/internal/cli"
	"sluice/internal/config"
	"sluice/test/cluster/apiserver"
)

const (
	// filesPerProcess is the number of files per process of upstream's code: it keeps
	// an inotify instance for each, of which the kernel allows few.
	filesPerProcess = 25
	// perCheck is the number of command lines per one that is also run by the binary.
	perCheck = 100
)

// outcome is the result of a kube-proxy for an input.
type outcome struct {
	refused string // why, and empty if it was accepted
	inForce map[string]string
}

// upstream returns what is built of upstream, once.
var upstream = sync.OnceValues(func() (apiserver.Binaries, error) {
	return apiserver.Build(context.Background(), func(string) {})
})

// listed returns what upstream's code lists: its feature gates or its flags.
func listed(t *testing.T, what string) string {
	t.Helper()
	binaries, err := upstream()
	if err != nil {
		t.Fatal(err)
	}
	text, err := exec.CommandContext(t.Context(), binaries.Upstream, what).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestConfigurationMatchesUpstream(t *testing.T) {
	binaries, err := upstream()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, dir: t.TempDir(), upstream: binaries.Upstream, binary: binaries.KubeProxy}
	all := b.prepare(slices.Concat(inputs(), gateInputs(t)))
	ours, theirs := b.askBoth(all)
	checked, used := 0, map[string]int{}
	for i, in := range all {
		found := differences(ours[i], theirs[i])
		// The binary decides.
		if (i%perCheck == 0 || anyNew(used, in, found)) && !in.starts {
			checked++
			again := b.askBinary(i, in)
			if d := differences(again, theirs[i]); len(d) > 0 {
				t.Errorf("%s: upstream's binary and its code differ: %v", in.name, d)
			}
		}
		for _, d := range found {
			if name := knownAs(in, d); name != "" {
				used[name]++
			} else {
				t.Errorf("%s: %v", in.name, d)
			}
		}
	}
	for _, k := range known {
		if used[k.name] == 0 {
			t.Errorf("known difference %q is none any more: take it out of the list and out of docs/configuration.md", k.name)
		}
	}
	t.Logf("%d inputs, %d of them by upstream's binary; known differences: %v", len(all), checked, used)
}

// anyNew reports whether there is an unknown difference, or one that was not seen
// yet.
func anyNew(used map[string]int, in input, found []difference) bool {
	return slices.ContainsFunc(found, func(d difference) bool { return used[knownAs(in, d)] == 0 })
}

// bench runs kube-proxies on inputs, in a directory of files.
type bench struct {
	*testing.T
	dir, upstream, binary string
}

// prepare writes the files and drops duplicates.
func (b *bench) prepare(all []input) []input {
	b.Helper()
	seen := map[string]input{}
	all = slices.DeleteFunc(all, func(in input) bool {
		before, twice := seen[in.name]
		if twice && !reflect.DeepEqual(before, in) {
			b.Errorf("there are two that are named %s", in.name)
		}
		seen[in.name] = in
		return twice
	})
	for i, in := range all {
		if in.file != nil {
			if err := os.WriteFile(b.path("in", i), []byte(*in.file), 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	return all
}

func (b *bench) path(what string, i int) string {
	return filepath.Join(b.dir, fmt.Sprint(what, i, ".yaml"))
}

// args returns the command line, which writes the configuration in force to a file.
func (b *bench) args(who string, i int, in input) []string {
	var args []string
	if !in.starts {
		args = append(args, "--write-config-to="+b.path(who, i))
	}
	if in.file != nil {
		args = append(args, "--config="+b.path("in", i))
	}
	return append(args, in.args...)
}

// written returns what a kube-proxy that exited without an error wrote.
func (b *bench) written(who string, i int) outcome {
	b.Helper()
	c := &v1alpha1.KubeProxyConfiguration{}
	data, err := os.ReadFile(b.path(who, i))
	if err == nil {
		err = yaml.Unmarshal(data, c)
	}
	if err != nil {
		b.Errorf("%s, input %d: %v", who, i, err)
	}
	return accepted(c)
}

func (b *bench) askOurs(i int, in input) outcome {
	b.Helper()
	if in.starts {
		return startOurs(in.args)
	}
	var stderr bytes.Buffer
	if cli.Main(b.args("ours", i, in), io.Discard, &stderr) != 0 {
		return outcome{refused: stderr.String()}
	}
	return b.written("ours", i)
}

func startOurs(args []string) outcome {
	set := pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	flags := config.AddFlags(set)
	if err := set.Parse(args); err != nil {
		return outcome{refused: err.Error()}
	}
	settings, err := flags.Settings()
	if err != nil {
		return outcome{refused: err.Error()}
	}
	return accepted(settings.Configuration)
}

func (b *bench) askBinary(i int, in input) outcome {
	b.Helper()
	output, err := exec.CommandContext(b.Context(), b.binary, b.args("binary", i, in)...).CombinedOutput()
	if err != nil {
		return outcome{refused: string(output)}
	}
	return b.written("binary", i)
}

// askBoth runs both on all inputs, at the same time.
func (b *bench) askBoth(all []input) (ours, theirs []outcome) {
	b.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i, in := range all {
			ours = append(ours, b.askOurs(i, in))
		}
	}()
	theirs = b.askUpstream(all)
	<-done
	return ours, theirs
}

// askUpstream runs upstream's code on all inputs, without a process for each.
func (b *bench) askUpstream(all []input) []outcome {
	b.Helper()
	out := make([]outcome, len(all))
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(runtime.NumCPU())
	for from, to := 0, 0; from < len(all); from = to {
		to = nextBatch(all, from)
		batch := all[from:to]
		group.Go(func() error {
			var lines bytes.Buffer
			for i, in := range batch {
				if err := json.NewEncoder(&lines).Encode(b.args("upstream", from+i, in)); err != nil {
					return err
				}
			}
			cmd := exec.CommandContext(ctx, b.upstream, "run")
			cmd.Stdin = &lines
			answers, err := cmd.Output()
			if err != nil {
				return fmt.Errorf("%v: %w", cmd, err)
			}
			return b.read(answers, out[from:from+len(batch)], from)
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return out
}

// nextBatch returns the end of the batch that starts there.
func nextBatch(all []input, from int) int {
	files := 0
	for i, in := range all[from:] {
		if in.file != nil {
			files++
		}
		if files > filesPerProcess {
			return from + i
		}
	}
	return len(all)
}

// read reads the answers of upstream's code.
func (b *bench) read(answers []byte, out []outcome, from int) error {
	decoder := json.NewDecoder(bytes.NewReader(answers))
	for i := range out {
		var answer struct {
			Error  string
			Config *v1alpha1.KubeProxyConfiguration
		}
		if err := decoder.Decode(&answer); err != nil {
			return fmt.Errorf("answer %d: %w", from+i, err)
		}
		switch {
		case answer.Error != "":
			out[i] = outcome{refused: answer.Error}
		case answer.Config != nil:
			out[i] = accepted(answer.Config)
		default:
			out[i] = b.written("upstream", from+i)
		}
	}
	return nil
}

// accepted returns the outcome of a configuration in force, without the fields of
// other modes.
func accepted(c *v1alpha1.KubeProxyConfiguration) outcome {
	data, err := json.Marshal(c)
	var tree map[string]any
	if err == nil {
		err = json.Unmarshal(data, &tree)
	}
	if err != nil { // as infinite numbers cannot
		return outcome{refused: "it cannot be shown: " + err.Error()}
	}
	out := outcome{inForce: map[string]string{}}
	flatten(out.inForce, "", tree)
	delete(out.inForce, "apiVersion")
	delete(out.inForce, "kind")
	maps.DeleteFunc(out.inForce, func(path, _ string) bool {
		section, _, _ := strings.Cut(path, ".")
		return slices.Contains([]string{"nftables", "iptables", "ipvs"}, section) && section != string(c.Mode)
	})
	return out
}

// flatten lists fields by their paths. Empty ones are omitted.
func flatten(out map[string]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			flatten(out, strings.TrimPrefix(path+"."+name, "."), v)
		}
	case []any:
		if len(value) > 0 {
			out[path] = fmt.Sprintf("%q", value)
		}
	default:
		if text := fmt.Sprint(value); text != "" && value != nil && value != false {
			out[path] = text
		}
	}
}

// difference is one between two outcomes: in a field, or, without the name of a
// field, in whether the input is accepted.
type difference struct {
	field, ours, upstream string
}

func (d difference) String() string {
	if d.field == "" {
		return fmt.Sprintf("ours: %s; upstream: %s", d.ours, d.upstream)
	}
	return fmt.Sprintf("%s is %q, and %q with upstream", d.field, d.ours, d.upstream)
}

func differences(ours, upstream outcome) []difference {
	if ours.refused != "" || upstream.refused != "" {
		if ours.refused != "" && upstream.refused != "" {
			return nil
		}
		return []difference{{"", verdict(ours), verdict(upstream)}}
	}
	paths := slices.Collect(maps.Keys(ours.inForce))
	paths = slices.AppendSeq(paths, maps.Keys(upstream.inForce))
	slices.Sort(paths)
	var out []difference
	for _, path := range slices.Compact(paths) {
		if a, b := ours.inForce[path], upstream.inForce[path]; a != b {
			out = append(out, difference{path, a, b})
		}
	}
	return out
}

func verdict(o outcome) string {
	if o.refused == "" {
		return "accepted"
	}
	return "refused: " + strings.TrimSpace(o.refused)
}
