//go:build linux

package lab_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// Failures of iptables on a node: the proxy reports them, and recovers without a
// restart.

var goodService = netip.MustParseAddrPort("10.96.0.1:80")

// iptablesLab is a lab with a directory of manifests for a proxy in a variant of
// iptables mode.
type iptablesLab struct {
	*lab.Lab
	t       *testing.T
	mode    string // iptables-nft or iptables-legacy
	variant string // nft or legacy
	node    *lab.Host
	dir     string
	proxy   *lab.Proxy
}

// inEachVariant runs a test in both variants of iptables mode, in parallel.
func inEachVariant(t *testing.T, test func(*iptablesLab)) {
	testkit.NotShort(t, "it is about iptables mode")
	for _, mode := range scenario.ModeNames() {
		if scenario.Modes[mode].Name == "iptables" {
			t.Run(mode, func(t *testing.T) {
				t.Parallel()
				inVariant(t, mode, test)
			})
		}
	}
}

func inVariant(t *testing.T, mode string, test func(*iptablesLab)) {
	l := &iptablesLab{Lab: lab.Start(t), t: t, mode: mode, variant: strings.TrimPrefix(mode, "iptables-"), dir: t.TempDir()}
	var err error
	if l.node, err = l.Host("node1"); err != nil {
		t.Fatal(err)
	}
	write(t, l.dir, "good.yaml", goodManifests, 0)
	test(l)
}

func (l *iptablesLab) start(o lab.ProxyOptions) {
	l.t.Helper()
	o.Manifests = l.dir
	l.proxy = startProxy(l.t, l.Lab, l.mode, o)
}

// run runs a command on the node.
func (l *iptablesLab) run(input string, args ...string) string {
	l.t.Helper()
	out, err := l.node.Run(l.t.Context(), lab.Command{Args: args, Input: input})
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// rules returns all rules of the variant, without counters and the like.
func (l *iptablesLab) rules() string {
	l.t.Helper()
	text := l.run("", scenario.Modes[l.mode].Dump...)
	text = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, "")
	return regexp.MustCompile(`\[\d+:\d+\]`).ReplaceAllString(text, "[0:0]")
}

// moveEndpoint makes another pod the endpoint of the Service.
func (l *iptablesLab) moveEndpoint() {
	l.t.Helper()
	write(l.t, l.dir, "good.yaml", strings.ReplaceAll(goodManifests, "10.244.1.1", "10.244.1.2"), 0)
}

// answeredBy waits until the Service is answered by a pod.
func (l *iptablesLab) answeredBy(pod string) {
	l.t.Helper()
	eventually(l.t, func() bool {
		o := l.Connect(l.t.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: goodService})
		return o.Kind == lab.Answered && o.By == pod
	})
}

func (l *iptablesLab) logs(pattern string) {
	l.t.Helper()
	re := regexp.MustCompile(pattern)
	eventually(l.t, func() bool { return re.MatchString(l.proxy.Log().String()) })
}

// systemDir is where the proxy always looks for commands.
const systemDir = "/usr/sbin"

// withPrograms returns a proxy for which the system's commands are those of a
// directory.
func (l *iptablesLab) withPrograms(dir string) (binary string) {
	l.t.Helper()
	proxy, err := lab.Binary()
	if err != nil {
		l.t.Fatal(err)
	}
	binary = filepath.Join(l.t.TempDir(), "kube-proxy")
	script := "#!/bin/sh\nexec unshare --mount sh -ec 'mount --bind " + dir + " " + systemDir +
		"; PATH=" + systemDir + " exec " + proxy + " \"$@\"' kube-proxy \"$@\"\n"
	if err := testkit.WriteExecutable(binary, []byte(script)); err != nil {
		l.t.Fatal(err)
	}
	return binary
}

// copyPrograms copies the iptables commands into a directory.
func (l *iptablesLab) copyPrograms(dir string) {
	l.t.Helper()
	for _, command := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"-save", "-restore"} {
			name := command + "-" + l.variant + verb
			path, err := exec.LookPath(name)
			if err != nil {
				l.t.Fatal(err)
			}
			copyFile(l.t, path, filepath.Join(dir, name))
		}
	}
}

func TestIPTablesBinariesAreMissing(t *testing.T) {
	t.Parallel()
	inEachVariant(t, func(l *iptablesLab) {
		l.start(lab.ProxyOptions{Binary: l.withPrograms(l.t.TempDir())})
		l.logs(`Error: iptables is not installed here.*\(install the package iptables`)
	})
}

// Commands may be missing for a while, as when their package is updated.
func TestIPTablesWaitsForMissingBinaries(t *testing.T) {
	t.Parallel()
	inEachVariant(t, func(l *iptablesLab) {
		dir := l.t.TempDir()
		l.copyPrograms(dir)
		l.start(lab.ProxyOptions{Binary: l.withPrograms(dir)})
		settle(l.t, l.proxy, l.dir, 0) // both families
		l.answeredBy("pod1")
		programs, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			l.t.Fatal(err)
		}
		for _, program := range programs {
			if err := os.Remove(program); err != nil {
				l.t.Fatal(err)
			}
		}
		l.moveEndpoint()
		l.logs(`iptables-.*-restore.*no such file`)
		l.copyPrograms(dir)
		l.answeredBy("pod2")
	})
}

// Only legacy has a lock; the kernel's own transactions need none.
func TestIPTablesNamesTheHeldLock(t *testing.T) {
	t.Parallel()
	inVariant(t, "iptables-legacy", func(l *iptablesLab) {
		l.start(lab.ProxyOptions{})
		l.answeredBy("pod1")
		lock, err := os.OpenFile(l.node.XtablesLock(), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			l.t.Fatal(err)
		}
		defer lock.Close()
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			l.t.Fatal(err)
		}
		l.moveEndpoint()
		l.logs(`holds the lock of iptables`)
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
			l.t.Fatal(err)
		}
		l.answeredBy("pod2")
	})
}

// The next proxy completes what its predecessor left half done, down to the last
// rule.
func TestIPTablesRepairsAHalfWrittenTable(t *testing.T) {
	t.Parallel()
	inEachVariant(t, func(l *iptablesLab) {
		l.start(lab.ProxyOptions{})
		settle(l.t, l.proxy, l.dir, 0)
		l.answeredBy("pod1")
		if err := l.proxy.Kill(); err != nil {
			l.t.Fatal(err)
		}
		want := l.rules()
		for _, family := range []string{"iptables", "ip6tables"} {
			whole := l.run("", family+"-"+l.variant+"-save")
			l.run(everySecondRule(whole), family+"-"+l.variant+"-restore", "-w", "10")
		}
		if cmp.Equal(want, l.rules()) {
			l.t.Fatal("nothing is missing from the table")
		}
		l.start(lab.ProxyOptions{})
		l.answeredBy("pod1")
		eventually(l.t, func() bool { return cmp.Equal(want, l.rules()) })
	})
}

// everySecondRule leaves out every second rule of a listing.
func everySecondRule(listing string) string {
	var b strings.Builder
	rules := 0
	for line := range strings.Lines(listing) {
		if strings.HasPrefix(line, "-A ") {
			if rules++; rules%2 == 0 {
				continue
			}
		}
		b.WriteString(line)
	}
	return b.String()
}

// manyServices are so many that they have chains of their own.
func manyServices() string {
	var b strings.Builder
	for i := range 100 {
		manifest := strings.ReplaceAll(goodManifests, "name: good", fmt.Sprintf("name: many%d", i))
		b.WriteString(strings.ReplaceAll(manifest, "10.96.0.1", fmt.Sprintf("10.96.1.%d", i)) + "---")
	}
	return b.String()
}

// A foreign rule that leads into a chain of ours keeps the chain from
// being deleted, and nothing from being programmed.
func TestIPTablesToleratesForeignRules(t *testing.T) {
	t.Parallel()
	inEachVariant(t, func(l *iptablesLab) {
		write(l.t, l.dir, "many.yaml", manyServices(), 0)
		l.start(lab.ProxyOptions{})
		settle(l.t, l.proxy, l.dir, 0)
		answered(l.t, l.Lab, netip.MustParseAddrPort("10.96.1.99:80"))
		foreign := l.useChains(regexp.MustCompile(`(?m)^:(KUBE-(?:IP|SERVICES|MARK|NODEPORTS)[A-Z0-9-]*) -`))
		mark := l.proxy.Log().Len()
		if err := os.Remove(filepath.Join(l.dir, "many.yaml")); err != nil {
			l.t.Fatal(err)
		}
		settle(l.t, l.proxy, l.dir, mark)
		l.answeredBy("pod1")
		l.moveEndpoint()
		l.answeredBy("pod2")
		rules := l.rules()
		if strings.Contains(rules, "10.96.1.99") {
			l.t.Errorf("a Service that was removed is still there:\n%s", rules)
		}
		for _, rule := range foreign {
			if !strings.Contains(rules, rule+"\n") {
				l.t.Errorf("the foreign rule is gone: %s", rule)
			}
		}
	})
}

// useChains adds a foreign rule for each chain of ours in table nat
// whose name matches.
func (l *iptablesLab) useChains(names *regexp.Regexp) (rules []string) {
	l.t.Helper()
	program := "iptables-" + l.variant
	for _, m := range names.FindAllStringSubmatch(l.run("", program+"-save", "-t", "nat"), -1) {
		rule := "-A PREROUTING -s 203.0.113.77/32 -j " + m[1]
		l.run("", append([]string{program, "-w", "10", "-t", "nat"}, strings.Fields(rule)...)...)
		rules = append(rules, rule)
	}
	if len(rules) < 5 {
		l.t.Fatalf("there are only %d chains", len(rules))
	}
	return rules
}
