//go:build linux

package lab_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice/internal/observe/verdict"
	"sluice/internal/testkit"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// asker runs the commands that query a running proxy.
type asker struct {
	t      *testing.T
	node   *lab.Host
	binary string
	socket string
	as     []string // runs a command as another user
}

// newAsker prepares for a proxy with its own control socket. The flag sets it.
func newAsker(t *testing.T, l *lab.Lab) (a *asker, flag string) {
	t.Helper()
	return newAskerAt(t, l, "node1")
}

// newAskerAt is newAsker on another node.
func newAskerAt(t *testing.T, l *lab.Lab, name string) (a *asker, flag string) {
	t.Helper()
	node, err := l.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sluice-control-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a = &asker{t: t, node: node, binary: binary, socket: filepath.Join(dir, "run", "proxy.sock")}
	return a, "--control-socket=" + a.socket
}

// ready waits until the proxy answers on its control socket, which may be after it has
// programmed everything.
func (a *asker) ready() {
	a.t.Helper()
	testkit.Eventually(a.t, func() error {
		conn, err := net.Dial("unix", a.socket)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// ask runs a command that asks the proxy.
func (a *asker) ask(args ...string) (stdout, stderr string, code int) {
	a.t.Helper()
	return a.run(append(slices.Clone(args), "--control-socket="+a.socket)...)
}

// run runs a command on the node and returns what it wrote and its exit code.
func (a *asker) run(args ...string) (stdout, stderr string, code int) {
	a.t.Helper()
	args = slices.Concat(a.as, []string{a.binary}, args)
	cmd := exec.CommandContext(a.t.Context(), args[0], args[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := a.node.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		a.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// explained is a question and the expected answer.
type explained struct {
	name string
	to   string
	from string   // --from; a host of the lab stands for its address
	want []string // in the answer
	// kernel has further expectations by mode.
	kernel map[string]string
	// nftables is set if other modes differ.
	nftables bool
	code     int
	// flow is the outcome of such a packet, which is actually sent, from the host of
	// the question.
	flow lab.Kind
	at   string // the address that the packet is sent to
}

var explanations = []explained{
	{name: "it works", to: "default/good", from: "pod3", at: "10.96.0.1:80", flow: lab.Answered,
		want: []string{"WORKS: reaches one of 2 endpoints", "10.244.1.3 is a pod", "ClusterIP of Service default/good, port named \"http\"",
			"in   10.244.1.1:8080  on this node", "out  10.244.2.2:8080  on node2: not ready", "masquerade     no", "programmed",
			"holds a verdict for it, and 2 endpoints"},
		kernel: map[string]string{
			"nftables": "ip sluice, services: 10.96.0.1 . tcp . 80 counter packets",
			"iptables": "-d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.2.1:8080",
		}},
	{name: "by its address", to: "10.96.0.1:80", from: "pod3", at: "10.96.0.1:80", flow: lab.Answered, want: []string{"Service default/good:http"}},
	{name: "from the node", to: "default/good:http", from: "node", at: "10.96.0.1:80", flow: lab.Answered,
		want: []string{"this node itself, 192.0.2.10", "masquerade     yes"}},
	{name: "no endpoints", to: "default/empty", from: "pod3", at: "10.96.0.2:80", flow: lab.Refused, code: 1,
		want: []string{"REFUSED (rejected): the Service has no endpoint", "the Service has no EndpointSlice", "add an EndpointSlice with the label kubernetes.io/service-name"},
		kernel: map[string]string{
			"nftables": "ip sluice, services: 10.96.0.2 . tcp . 80 counter packets",
			"iptables": "iptables filter: -A KUBE-SERVICES -d 10.96.0.2/32 -p tcp",
		}},
	{name: "port names differ", to: "default/misnamed", from: "pod3", at: "10.96.0.3:80", flow: lab.Refused, code: 1,
		want: []string{`1 endpoint in a slice without the port: the Service needs a TCP port named "http", its slices have TCP port named "web"`}},
	{name: "not ready", to: "default/unready", from: "pod3", at: "10.96.0.4:80", flow: lab.Refused, code: 1,
		want: []string{"1 endpoint not ready", "1 endpoint terminating and no longer serving"}},
	{name: "only terminating", to: "default/ending", from: "pod3", at: "10.96.0.5:80", flow: lab.Answered,
		want: []string{"terminating but still serve: none is ready", "they will be gone soon"}},
	{name: "internal policy Local without a local endpoint", to: "default/local", from: "pod3", at: "10.96.0.6:80", flow: lab.Dropped, code: 1,
		want: []string{"REFUSED (dropped)", "internalTrafficPolicy is Local and no endpoint on this node (node1)", "out  10.244.2.1:8080  on node2: not on this node"}},
	{name: "external policy Local without a local endpoint", to: "default/local", from: "client", at: "198.18.0.6:80", flow: lab.Dropped, code: 1,
		want: []string{"at 198.18.0.6:80/TCP", "externalTrafficPolicy is Local", "healthCheckNodePort", "there is one on another node"}},
	{name: "external policy Local from inside", to: "198.18.0.6:80", from: "pod3", at: "198.18.0.6:80", flow: lab.Answered,
		want: []string{"although externalTrafficPolicy is Local, for the client is inside"}},
	{name: "by its name alone", to: "good:http", from: "pod3", at: "10.96.0.1:80", flow: lab.Answered, want: []string{"Service default/good:http at 10.96.0.1:80/TCP"}},
	{name: "by its node port alone", to: ":30006", from: "node", at: "192.0.2.10:30006", flow: lab.Answered, want: []string{"Service default/local at 192.0.2.10:30006/TCP"}},
	{name: "a node port", to: "default/local:30006", from: "node", at: "192.0.2.10:30006", flow: lab.Answered,
		want: []string{"192.0.2.10:30006/TCP is the NodePort of Service default/local", "this node itself uses an external address"}},
	{name: "source ranges exclude me", to: "default/ranges", from: "client", at: "198.18.0.7:80", flow: lab.Dropped, code: 1,
		want: []string{"REFUSED (dropped): loadBalancerSourceRanges", "203.0.113.0/24", "add a range with 198.51.100.10"}},
	{name: "source ranges admit me", to: "default/ranges", from: "client2", at: "198.18.0.7:80", flow: lab.Answered,
		want: []string{"may connect"},
		kernel: map[string]string{
			"nftables": "ip sluice, sources: 198.18.0.7 . 80 . 203.0.113.0 . 6024",
			"iptables": "-s 203.0.113.0/24 -m comment",
		}},
	{name: "hints exclude an endpoint", to: "default/hints", from: "pod3", at: "10.96.0.8:80", flow: lab.Answered,
		want: []string{"those whose hints name this node's zone (zone-1)", "out  10.244.2.1:8080  on node2: hinted to zone zone-2"}},
	{name: "wrong port", to: "default/good:81", from: "pod3", at: "10.96.0.1:81", flow: lab.Refused, code: 1, nftables: true,
		want: []string{"REFUSED (rejected): there is no such port", "Service default/good has no such port; it has 80/TCP (http)"}},
	{name: "wrong port name", to: "default/good:https", code: 1, want: []string{"REFUSED (not used): there is no such port", "it has 80/TCP (http)"}},
	{name: "wrong protocol", to: "10.96.0.1:80/udp", from: "pod3", code: 1, nftables: true, want: []string{"REFUSED (rejected)", "it has 80/TCP (http)"}},
	{name: "unused ClusterIP", to: "10.96.200.1:80", from: "pod3", at: "10.96.200.1:80", flow: lab.Dropped, code: 1, nftables: true,
		want: []string{"REFUSED (dropped): no Service has this address", "in a service CIDR"}},
	{name: "no Service's address", to: "192.0.2.254:80", from: "pod3", code: 1, want: []string{"UNTOUCHED", "the proxy does not touch the packet"}},
	{name: "a pod's address", to: "10.244.1.1:8080", from: "pod3", at: "10.244.1.1:8080", flow: lab.Answered, code: 1,
		want: []string{"UNTOUCHED", "the address is an endpoint of Service default/good"}},
	{name: "headless", to: "default/headless", code: 1, want: []string{"no such Service is known", "headless (clusterIP: None)"}},
	{name: "ExternalName", to: "default/elsewhere", code: 1, want: []string{"no such Service is known", "of type ExternalName"}},
	{name: "another proxy's", to: "default/foreign", code: 1, want: []string{"no such Service is known", "service.kubernetes.io/service-proxy-name"}},
	{name: "wrong namespace", to: "prod/good", code: 1, want: []string{"there is a Service of that name in namespace default", "ask for default/good"}},
	{name: "address of an older Service", to: "default/taken", code: 1,
		want: []string{"198.18.0.12:80/TCP belongs to Service default/taker"}},
	{name: "SCTP", to: "default/sticky:sctp", from: "pod3", want: []string{"WORKS", "10.96.0.9:80/SCTP"}},
}

// Every question is answered with its cause, and with what really happens.
func TestExplainNamesTheCause(t *testing.T) {
	t.Parallel()
	inEachMode(t, explainNamesTheCause)
}

func explainNamesTheCause(t *testing.T, mode string) {
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	manifests, err := os.ReadFile("testdata/explain.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "services.yaml", string(manifests), 0)
	p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: []string{flag, "--cluster-cidr=10.244.0.0/16"}})
	settle(t, p, dir, 0)
	a.ready()
	for _, test := range explanations {
		if test.nftables && mode != "nftables" {
			continue
		}
		test.want = append(slices.Clone(test.want), test.kernel[scenario.Modes[mode].Name])
		t.Run(test.name, func(t *testing.T) { test.check(t, l, a) })
	}
	t.Run("session affinity", func(t *testing.T) { checkAffinity(t, l, a) })
	t.Run("JSON", func(t *testing.T) { checkJSON(t, a) })
	t.Run("status", func(t *testing.T) { checkStatus(t, a, scenario.Modes[mode].Name) })
	t.Run("mistakes in the question", func(t *testing.T) { checkMistakes(t, a) })
	t.Run("other users", func(t *testing.T) { checkOtherUser(t, a) })
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	t.Run("no proxy", func(t *testing.T) {
		if _, stderr, code := a.ask("explain", "default/good"); code != 2 || !strings.Contains(stderr, "no proxy answers on "+a.socket) {
			t.Errorf("exit code %d, %s", code, stderr)
		}
	})
}

func (e explained) check(t *testing.T, l *lab.Lab, a *asker) {
	args, sender := []string{"explain", e.to}, "pod3"
	switch h, err := l.Host(e.from); {
	case err == nil:
		args, sender = append(args, "--from", h.Addrs[0].String()), e.from
	case e.from == "node":
		args, sender = append(args, "--from", e.from), "node1"
	}
	stdout, stderr, code := a.ask(args...)
	if code != e.code {
		t.Errorf("exit code %d, want %d: %s", code, e.code, stderr)
	}
	for _, want := range e.want {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in the answer", want)
		}
	}
	if strings.Contains(stdout, "the kernel holds something else") {
		t.Error("it seems to be programmed wrongly")
	}
	if e.flow != "" {
		f := lab.Flow{From: sender, Protocol: lab.TCP, To: netip.MustParseAddrPort(e.at)}
		if e.flow == lab.Dropped {
			f.Timeout = lab.ShortTimeout
		}
		if o := l.Connect(t.Context(), f); o.Kind != e.flow {
			t.Errorf("the packet is %v, want %s", o, e.flow)
		}
	}
	if t.Failed() {
		t.Logf("the answer:\n%s", stdout)
	}
}

// checkAffinity makes a connection and asks which endpoint the next one reaches.
func checkAffinity(t *testing.T, l *lab.Lab, a *asker) {
	o := l.Connect(t.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort("10.96.0.9:80")})
	if o.Kind != lab.Answered {
		t.Fatal(o)
	}
	by, err := l.Host(o.By)
	if err != nil {
		t.Fatal(err)
	}
	stdout, _, code := a.ask("explain", "--from", "10.244.1.3", "10.96.0.9:80")
	if want := by.Addrs[0].String() + ":8080, which the kernel remembers for this client"; code != 0 || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d, %q is not in the answer:\n%s", code, want, stdout)
	}
}

func checkJSON(t *testing.T, a *asker) {
	stdout, _, code := a.ask("explain", "--json", "default/misnamed")
	for _, want := range []string{`"verdict": "refused"`, `"fate": "rejected"`, `"cause": "no-endpoints"`, `"reason": "missing-port"`, `"flows": false`} {
		if code != 1 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, %s is not in:\n%s", code, want, stdout)
		}
	}
}

func checkStatus(t *testing.T, a *asker, mode string) {
	stdout, stderr, code := a.ask("status")
	for _, want := range []string{"on node node1: " + mode + " mode", "serving", "in sync", "0 failed, of 17", "last changes", "left out of objects: 1",
		"Service default/taken: spec.externalIPs"} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, %q is not in:\n%s%s", code, want, stdout, stderr)
		}
	}
	if stdout, _, code = a.ask("status", "--json"); code != 0 || !strings.Contains(stdout, `"synced": true`) {
		t.Errorf("exit code %d:\n%s", code, stdout)
	}
}

func checkMistakes(t *testing.T, a *asker) {
	tests := []struct {
		name string
		in   []string
		want string
	}{
		{"nothing to explain", []string{"explain"}, "name one thing to explain, such as default/web"},
		{"a colon and no port", []string{"explain", "default/good:"}, "has a colon and no port"},
		{"unknown interface", []string{"explain", "--interface", "nosuch", "default/good"}, "no interface"},
		{"no such protocol", []string{"explain", "10.96.0.1:80/icmp"}, "use TCP, UDP or SCTP"},
		{"unknown sender", []string{"explain", "--from", "mars", "default/good"}, "neither an IP nor one of pod, node, outside"},
		{"two families", []string{"explain", "--from", "2001:db8::1", "10.96.0.1:80"}, "different families"},
		{"unknown flag", []string{"explain", "--frm", "pod", "default/good"}, "unknown flag"},
		{"argument of status", []string{"status", "default/good"}, "unknown command"},
		{"terminal escapes", []string{"explain", "default\x1b[2J"}, `default\x1b[2J`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			stdout, stderr, code := a.ask(test.in...)
			if code != 2 || stdout != "" || !strings.Contains(stderr, test.want) || strings.Contains(stderr, "\x1b") {
				t.Errorf("exit code %d, %q, want 2 and %q on standard error", code, stdout+stderr, test.want)
			}
		})
	}
}

// checkOtherUser asks as user nobody: the directory is closed, and were it open,
// the proxy would check the user.
func checkOtherUser(t *testing.T, a *asker) {
	outer := filepath.Dir(filepath.Dir(a.socket))
	binary := filepath.Join(outer, "kube-proxy")
	copyFile(t, a.binary, binary)
	if err := os.Chmod(outer, 0o755); err != nil {
		t.Fatal(err)
	}
	nobody := *a
	nobody.t, nobody.binary = t, binary
	nobody.as = []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
	if _, stderr, code := nobody.ask("status"); code != 2 || !strings.Contains(stderr, "permission denied") || !strings.Contains(stderr, "as root") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if err := errors.Join(os.Chmod(filepath.Dir(a.socket), 0o755), os.Chmod(a.socket, 0o666)); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := nobody.ask("status"); code != 2 || !strings.Contains(stderr, "user 65534 may not ask this proxy") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// If the kernel refuses to be programmed, that is reported as the cause, until it
// is over.
func TestExplainReportsKernelRefusal(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)

	// A table that has an owner cannot be changed by other processes.
	owner := exec.CommandContext(t.Context(), "nft", "-i")
	input, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.node.Do(owner.Start); err != nil {
		t.Fatal(err)
	}
	release := func() { input.Close(); _ = owner.Wait() }
	defer release()
	if _, err := io.WriteString(input, "add table ip sluice { flags owner; }\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		tables, err := a.node.Run(t.Context(), lab.Command{Args: []string{"nft", "list", "tables"}})
		return err == nil && strings.Contains(tables, "table ip sluice")
	})
	launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag}})
	answer := ""
	eventually(t, func() bool {
		var code int
		answer, _, code = a.ask("explain", "default/good")
		return code == 1 && strings.Contains(answer, "UNKNOWN YET") &&
			strings.Contains(answer, "the kernel cannot be programmed at the moment") && strings.Contains(answer, "not permitted")
	})
	if stdout, _, code := a.ask("status"); code != 1 || !strings.Contains(stdout, "FAILING") {
		t.Errorf("status ends with %d:\n%s", code, stdout)
	}
	release()
	eventually(t, func() bool { _, _, code := a.ask("explain", "default/good"); return code == 0 })
}

// If pods are recognised by their interface, an address is looked up in the node's
// routes.
func TestExplainFindsTheInterfaceOfAnAddress(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag,
		"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=" + lab.PodBridge}})
	settle(t, p, dir, 0)
	a.ready()
	for from, want := range map[string]string{
		"10.244.1.3":    "10.244.1.3 is a pod, recognised by interface podbr0",
		"10.244.1.1":    "10.244.1.1 is neither a pod nor this node",
		"192.0.2.10":    "this node itself",
		"198.51.100.10": "198.51.100.10 is neither a pod nor this node",
	} {
		if stdout, stderr, code := a.ask("explain", "--from", from, "default/good"); code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("from %s: exit code %d, %q is not in:\n%s%s", from, code, want, stdout, stderr)
		}
	}
}

// If node ports are served on all addresses, the routing table decides which are
// local.
func TestExplainKnowsLocalRoutes(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode string) {
		l := lab.Start(t)
		a, flag := newAsker(t, l)
		if out, err := a.node.Run(t.Context(), lab.Command{Args: []string{"ip", "route", "add", "local", "198.18.0.50/32", "dev", "eth0"}}); err != nil {
			t.Fatal(err, out)
		}
		dir := t.TempDir()
		write(t, dir, "good.yaml", strings.Replace(goodManifests, "ports: [{port: 80}]", "type: NodePort\n  ports: [{port: 80, nodePort: 30080}]", 1), 0)
		p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: []string{flag, "--nodeport-addresses=all"}})
		settle(t, p, dir, 0)
		a.ready()
		routed := explained{to: "198.18.0.50:30080", from: "client", at: "198.18.0.50:30080", flow: lab.Answered,
			want: []string{"WORKS", "198.18.0.50:30080/TCP is the NodePort of Service default/good", "holds a verdict for it"}}
		if strings.HasPrefix(mode, "iptables") {
			routed.want = append(routed.want, "-A KUBE-NODEPORT-IPS ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -g KUBE-NODEPORTS")
		}
		routed.check(t, l, a)
		foreign := explained{to: "198.18.0.51:30080", from: "client", at: "198.18.0.51:30080", flow: lab.Passed, want: []string{"UNTOUCHED"}, code: 1}
		foreign.check(t, l, a)
	})
}

// If a mode differs, so does its explanation.
func TestExplainFitsTheMode(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, mode string) {
		l := lab.Start(t)
		a, flag := newAsker(t, l)
		dir := t.TempDir()
		write(t, dir, "good.yaml", goodManifests, 0)
		p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: []string{flag}})
		settle(t, p, dir, 0)
		a.ready()
		unknown, seen := "REFUSED (rejected)", lab.Refused
		if strings.HasPrefix(mode, "iptables") {
			unknown, seen = "UNTOUCHED", lab.Passed
		}
		good := explained{to: "default/good", from: "pod3", at: "10.96.0.1:80", flow: lab.Answered, want: []string{"WORKS"}}
		good.check(t, l, a)
		wrong := explained{to: "default/good:81", from: "pod3", at: "10.96.0.1:81", flow: seen, want: []string{unknown, "it has 80/TCP"}, code: 1}
		wrong.check(t, l, a)
	})
}

// A frontend that the kernel refuses is named with the kernel's reason; others
// are served.
func TestExplainNamesARefusedFrontend(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	start := func() *lab.Proxy {
		p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag}})
		settle(t, p, dir, 0)
		return p
	}
	if err := start().Stop(); err != nil {
		t.Fatal(err)
	}
	// The map of frontends is made so small that no other fits.
	listing, err := a.node.Run(t.Context(), lab.Command{Args: []string{"nft", "list", "ruleset"}})
	if err != nil {
		t.Fatal(err)
	}
	small := strings.Replace(listing, "map services {\n", "map services {\n\t\tsize 1\n", 1)
	if _, err := a.node.Run(t.Context(), lab.Command{Args: []string{"nft", "-f", "-"}, Input: "flush ruleset\n" + small}); err != nil {
		t.Fatal(err)
	}
	more := strings.NewReplacer("good", "more", "10.96.0.1\n", "10.96.0.2\n").Replace(goodManifests)
	write(t, dir, "more.yaml", more, 0)
	start()
	answer := ""
	eventually(t, func() bool {
		var code int
		answer, _, code = a.ask("explain", "default/more")
		return code == 1 && strings.Contains(answer, "the kernel refused this frontend")
	})
	for _, want := range []string{"DOES NOT ANSWER", "refused by the kernel, tried ", "next try in", "the kernel refused 10.96.0.2:80/TCP: "} {
		if !strings.Contains(answer, want) {
			t.Errorf("%q is not in the answer:\n%s", want, answer)
		}
	}
	if stdout, _, code := a.ask("status"); code != 1 || !strings.Contains(stdout, "FAILED     10.96.0.2:80/TCP default/more") {
		t.Errorf("status ends with %d:\n%s", code, stdout)
	}
	failing(t, a, l, "more", verdict.NoAnswer, "programming-failed")
	judged(t, a, l, goodAddress)
}
