package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// TestDeployedProxyServes runs the pod of the Helm chart from the archive of the image,
// with the privileges that both give it.
func TestDeployedProxyServes(t *testing.T) {
	s := startWithoutProxy(t)
	for _, file := range []string{deployed, "../../deploy/kustomize/iptables/sluice.yaml", deployedNonRoot, releaseDir + "/testdata/everything.yaml"} {
		s.dryRun(file)
	}
	d := s.deploy()
	d.initialize()
	d.startContainer()
	d.expectFewRights("0", "1")
	web := d.create("web", "pod1")
	d.expect("a Service of the cluster", answered(clusterFlows(web), "pod1"))
	d.probe()
	d.ask(allProgrammed, "kube-proxy", "status")
	d.ask("in sync, API server https://", "kube-proxy", "status")
	d.ask("WORKS", "kube-proxy", "explain", namespace+"/web")
	d.expectStartingEvent()

	stop := d.traffic(trafficFlows(web))
	for _, end := range []struct {
		signal string
		code   int
	}{{"TERM", 0}, {"KILL", 128 + 9}} {
		rules := d.rules()
		d.endContainer(end.signal, end.code)
		d.expect("without a proxy, after "+end.signal, answered(clusterFlows(web), "pod1"))
		d.startContainer()
		d.ask(allProgrammed, "kube-proxy", "status")
		if diff := cmp.Diff(rules, d.rules()); diff != "" {
			t.Errorf("the proxy that came after %s changed rules (-before +after):\n%s", end.signal, diff)
		}
	}
	stop()
	d.setPods("web", "remote1")
	d.expect("another endpoint", answered(clusterFlows(web), "remote1"))
	d.expectConfigMapIsFollowed()
	d.endContainer("TERM", 0)

	// The same without root, in a pod with volumes of its own.
	d.redeploy(deployedNonRoot)
	d.startContainer()
	d.expectFewRights("65532", "0")
	d.ask("programmed, 0 pending, 0 failed", "kube-proxy", "status")
	d.setPods("web", "pod2")
	d.expect("an endpoint that came without root", answered(clusterFlows(web), "pod2"))
	d.endContainer("TERM", 0)
}

// allProgrammed is the status of the Services default/kubernetes and web.
const allProgrammed = "7 programmed, 0 pending, 0 failed, of 7"

// initialize runs the init container.
func (d *deployment) initialize() {
	d.Helper()
	for i := range d.object.Spec.InitContainers {
		d.runContainer(&d.object.Spec.InitContainers[i])
		d.awaitEnd(0)
	}
	for name, want := range sysctls {
		if got := d.sysctl(name); got != want {
			d.Errorf("after the init container, %s is %s, want %s", name, got, want)
		}
	}
}

func (d *deployment) sysctl(name string) string {
	d.Helper()
	var text []byte
	err := d.host(d.node).Do(func() (err error) {
		text, err = os.ReadFile(filepath.Join("/proc/sys/net/netfilter", name))
		return err
	})
	if err != nil {
		d.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// startContainer starts the proxy and waits until it is ready.
func (d *deployment) startContainer() {
	d.Helper()
	d.runContainer(&d.object.Spec.Containers[0])
	d.eventually("the proxy is ready", func(context.Context) error {
		return d.probed(d.object.Spec.Containers[0].ReadinessProbe)
	})
}

func (d *deployment) runContainer(of *corev1.Container) {
	d.Helper()
	container, err := d.pod.Container(of)
	if err != nil {
		d.Fatal(err)
	}
	d.container, d.proxy = container, d.runOn(d.node, container.Command()...)
}

// endContainer stops the proxy and checks how it exits.
func (d *deployment) endContainer(signal string, want int) {
	d.Helper()
	if err := d.container.Signal(d.Context(), signal); err != nil {
		d.Fatal(err)
	}
	d.awaitEnd(want)
}

// awaitEnd waits until the container exits with a code, and checks its log.
func (d *deployment) awaitEnd(want int) {
	d.Helper()
	testkit.Receive(d, d.proxy.Done, "the end of the container")
	if got := d.proxy.Cmd.ProcessState.ExitCode(); got != want {
		d.Fatalf("the container ended with %d, want %d:\n%s", got, want, d.proxy.Tail())
	}
	text, err := os.ReadFile(d.proxy.Log)
	if err != nil {
		d.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if complains(line) {
			d.Errorf("the container complains: %s", line)
		}
	}
	d.proxy = nil
}

// complains reports whether a line of a log is an error or a warning.
func complains(line string) bool {
	if strings.HasPrefix(line, "E") || strings.HasPrefix(line, "W") || strings.HasPrefix(line, "F") {
		return true
	}
	return slices.ContainsFunc([]string{"warning", "denied", "forbidden", "not permitted", "read-only", "no such file", "stays as it is"},
		func(word string) bool { return strings.Contains(strings.ToLower(line), word) })
}

// probe makes the kubelet's requests.
func (d *deployment) probe() {
	d.Helper()
	c := d.object.Spec.Containers[0]
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if err := d.probed(p); err != nil {
			d.Error(err)
		}
	}
}

func (d *deployment) probed(p *corev1.Probe) error {
	to := netip.AddrPortFrom(d.host(d.node).Addrs[0], uint16(p.HTTPGet.Port.IntValue()))
	page, err := d.lab.Get(lab.Flow{From: d.node, Protocol: lab.TCP, To: to, Timeout: lab.DefaultTimeout}, p.HTTPGet.Path)
	if err == nil && page.Status != 200 {
		err = fmt.Errorf("%v%s says:\n%s", to, p.HTTPGet.Path, page.Text)
	}
	return err
}

// ask runs a command in the container until the answer is the expected one.
func (d *deployment) ask(want string, command ...string) {
	d.Helper()
	d.eventually(strings.Join(command, " "), func(ctx context.Context) error {
		answer, err := d.container.Exec(ctx, command...)
		if err == nil && !strings.Contains(answer, want) {
			err = fmt.Errorf("the answer has no %q:\n%s", want, answer)
		}
		return err
	})
}

// expectFewRights checks that the proxy has few privileges, as a user.
func (d *deployment) expectFewRights(uid, noNewPrivs string) {
	d.Helper()
	process, err := d.container.Process(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	netAdmin := fmt.Sprintf("%016x", 1<<unix.CAP_NET_ADMIN)
	want := map[string]string{"CapEff": netAdmin, "CapPrm": netAdmin, "CapBnd": netAdmin, "NoNewPrivs": noNewPrivs,
		"Uid": strings.Repeat(uid+"\t", 3) + uid, "Seccomp": strconv.Itoa(unix.SECCOMP_MODE_FILTER)}
	got := map[string]string{}
	for field := range want {
		got[field] = process[field]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		d.Errorf("rights of the proxy (-want +got):\n%s", diff)
	}
}

// expectStartingEvent waits for the Event about the start of the proxy.
func (d *deployment) expectStartingEvent() {
	d.Helper()
	d.eventually("there is an Event of the start", func(ctx context.Context) error {
		events, err := d.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Node,involvedObject.name=node1,reason=Starting",
		})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}

// expectConfigMapIsFollowed changes the node port addresses.
func (d *deployment) expectConfigMapIsFollowed() {
	d.Helper()
	d.update("web", func(spec *corev1.ServiceSpec) {
		spec.Type = corev1.ServiceTypeNodePort
		setNodePorts(spec, nodePort)
	})
	node := d.host("node1")
	first, spare := flowsTo("client", nodePort, node.Addrs[0].String()), flowsTo("client", nodePort, node.Spare[0].String())
	d.expect("node ports at the first address", answered(first, "remote1"), refused(spare))
	d.configure(`nodePortAddresses: ["primary"]`, `nodePortAddresses: ["192.0.2.0/24"]`)
	d.expect("node ports at all addresses of a range", answered(append(first, spare...), "remote1"))
}

// rules returns the rules in the kernel, without counters and handles.
func (d *deployment) rules() []string {
	d.Helper()
	listing, err := d.host("node1").Run(d.Context(), lab.Command{Args: []string{"nft", "--stateless", "--handle", "list", "ruleset"}})
	if err != nil {
		d.Fatal(err)
	}
	return strings.Split(listing, "\n")
}
