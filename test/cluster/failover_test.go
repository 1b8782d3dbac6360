package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice/internal/observe/telemetry"
	"sluice/test/cluster/apiserver"
	"sluice/test/lab"
)

// A pod of three no longer answers, and the API does not know. A third of the connections through upstream's
// kube-proxy fail as long as that lasts; through this proxy none does, if the Service asks for it, and an Event
// says so.
func TestDeadPodBesideUpstream(t *testing.T) {
	binaries, err := apiserver.Build(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	s := startWithoutProxy(t)
	web := s.create("web", "pod1", "pod3", "remote1")
	patch := []byte(`{"metadata":{"annotations":{"sluice/eject":"true"}}}`)
	if _, err := s.services().Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	flows := trafficFlows(web)
	for i := range flows {
		flows[i].Timeout = 3300 * time.Millisecond
	}
	lost := func(name string) lab.TrafficCount {
		s.expect(name, answered(flows, "pod1", "pod3", "remote1"))
		s.onRemote("add table inet dark; add chain inet dark in { type filter hook prerouting priority -300; }; add rule inet dark in meta l4proto tcp drop")
		defer s.onRemote("delete table inet dark")
		traffic, err := s.lab.StartTraffic(t.Context(), flows, lab.TrafficOptions{Rate: 40})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		count := traffic.Stop()
		t.Logf("%s: %v", name, count)
		return count
	}
	s.proxy = s.startMode(binaries.KubeProxy, "nftables")
	if c := lost("upstream"); 6*c.Failed < c.Opened {
		t.Errorf("through upstream only %d of %d connections fail: the test shows less than it should", c.Failed, c.Opened)
	}
	own, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	s.replace(own, "nftables")
	if c := lost("this proxy"); c.Failed > 0 {
		t.Errorf("%d of %d connections fail: %q", c.Failed, c.Opened, c.Losses)
	}
	s.eventually("an Event", func(ctx context.Context) error {
		list, err := s.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Reason == telemetry.ReasonEndpointEjected && e.InvolvedObject.Name == "web"
		}) {
			return fmt.Errorf("there are %d others", len(list.Items))
		}
		return nil
	})
}

// onRemote runs nft in the pod remote1.
func (s *site) onRemote(command string) {
	s.Helper()
	if _, err := s.host("remote1").Run(s.Context(), lab.Command{Args: []string{"nft", command}}); err != nil {
		s.Fatal(err)
	}
}
