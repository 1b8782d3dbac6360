package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"sluice/internal/base/release"
)

// helpOf returns the help of a command.
func helpOf(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := Main(append(args, "--help"), &stdout, &stderr); code != 0 {
		t.Fatalf("%v: exit code %d: %s", args, code, &stderr)
	}
	return stdout.String()
}

func TestHelpFitsTheScreen(t *testing.T) {
	var commands [][]string
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		commands = append(commands, path)
		for _, sub := range cmd.Commands() {
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
	}
	walk(newCommand(&options{}), nil)
	if len(commands) < 8 {
		t.Fatalf("only %d commands", len(commands))
	}
	for _, args := range commands {
		for line := range strings.Lines(helpOf(t, args...)) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > helpWidth {
				t.Errorf("%v: %d columns: %s", args, n, line)
			}
		}
	}
}

// A command that takes the flags of the proxy has its own ones first.
func TestOwnFlagsComeFirst(t *testing.T) {
	for _, test := range []struct{ command, own, proxys string }{
		{"check", "--try", "--cluster-cidr"},
		{"check", "--output", "--kubeconfig"},
		{"render", "--family", "--cluster-cidr"},
		{"render", "--mode", "--config"},
		{"diff", "--against", "--cluster-cidr"},
	} {
		own, others, found := strings.Cut(helpOf(t, test.command), "\nFlags of the proxy:\n")
		if !found || !strings.Contains(own, "\n  "+test.own+" ") && !strings.Contains(own, " "+test.own+" ") && !strings.Contains(own, "  "+test.own+"\n") {
			t.Errorf("%s: %s is not among its own flags:\n%s", test.command, test.own, own)
		}
		if !strings.Contains(others, "\n  "+test.proxys+" ") && !strings.HasPrefix(others, "  "+test.proxys+" ") {
			t.Errorf("%s: %s is not among the flags of the proxy:\n%s", test.command, test.proxys, others)
		}
	}
}

func TestFlagsAreGrouped(t *testing.T) {
	text := helpOf(t)
	at := 0
	for _, want := range []string{"\nConfiguration:\n", "\n  --config string\n", "\nAPI server and manifests:\n", "\n  --manifests string\n",
		"\nRules:\n", "\n  --proxy-mode ", "\nNode:\n", "\n  --conntrack-min ", "\nHTTP, metrics and the control socket:\n", "\n  --page\n",
		"\nLog:\n", "\n  -v, --v ", "\nWindows:\n", "\n  --network-name string\n"} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("%q is not where it should be in\n%s", want, text)
		}
		at += i
	}
	if strings.Count(text, "\n  --manifests ") != 1 {
		t.Error("a flag is there twice")
	}
}

func TestMisspelledCommandsAndFlags(t *testing.T) {
	tests := []struct {
		in   []string
		code int
		want string
	}{
		{[]string{"statuss"}, 1, `unknown command "statuss" (did you mean status?); see 'kube-proxy --help'`},
		{[]string{"frobnicate"}, 1, `unknown command "frobnicate"; see 'kube-proxy --help'`},
		{[]string{"--manifest", "x"}, 1, "unknown flag: --manifest (did you mean --manifests?); see 'kube-proxy --help'"},
		{[]string{"status", "--wacht"}, 2, "unknown flag: --wacht (did you mean --watch?); see 'kube-proxy status --help'"},
		{[]string{"--frobnicate"}, 1, "unknown flag: --frobnicate; see 'kube-proxy --help'"},
	}
	for _, test := range tests {
		var stdout, stderr bytes.Buffer
		if code := Main(test.in, &stdout, &stderr); code != test.code || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%v: exit code %d: %s\nwant %q", test.in, code, &stderr, test.want)
		}
	}
}

func TestVersionAndCompletion(t *testing.T) {
	for _, test := range []struct {
		in   []string
		want string
	}{
		{[]string{"version"}, "Sluice " + release.Version() + ", a kube-proxy for Kubernetes " + release.KubernetesVersion},
		{[]string{"version", "-o", "json"}, `"kubernetes": "` + release.KubernetesVersion + `"`},
		{[]string{"completion", "bash"}, "__start_kube-proxy"},
		{[]string{"completion", "zsh"}, "#compdef kube-proxy"},
		{[]string{"completion", "fish"}, "complete -c kube-proxy"},
		{[]string{"__complete", "stat"}, "status"},
		{[]string{"__complete", "status", "-o", ""}, "yaml"},
	} {
		var stdout, stderr bytes.Buffer
		if code := Main(test.in, &stdout, &stderr); code != 0 || !strings.Contains(stdout.String(), test.want) {
			t.Errorf("%v: exit code %d, %q is not in\n%.500s", test.in, code, test.want, stdout.String())
		}
	}
}
