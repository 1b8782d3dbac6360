package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice/test/cluster/apiserver"
	"sluice/test/lab"
)

// A proxy whose Node object is missing or incomplete serves nevertheless. It
// reports that immediately, everywhere, also to load balancers.
func TestMissingNodeIsReported(t *testing.T) {
	s := startWithoutProxy(t)
	nodes := s.client.CoreV1().Nodes()
	if err := nodes.Delete(t.Context(), "node1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "control.sock")
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := s.server.Kubeconfig(apiserver.KubeProxy)
	if err != nil {
		t.Fatal(err)
	}
	s.proxy = s.run(path, "--kubeconfig", kubeconfig, "--hostname-override", "node1", "--proxy-mode=nftables",
		"--detect-local-mode=NodeCIDR", "--control-socket", socket)
	web := s.create("web", "pod1")
	s.expect("without a Node object", answered(clusterFlows(web), "pod1"))
	report := func(ctx context.Context) (out struct {
		Leaving  string
		Problems []struct{ Object, Field, Reason string }
	}, err error) {
		text, err := exec.CommandContext(ctx, path, "status", "--control-socket", socket, "--json").Output()
		if len(text) == 0 && err != nil {
			return out, err
		}
		return out, json.Unmarshal(text, &out)
	}
	wantStatus := func(when string, fields ...string) {
		t.Helper()
		s.eventually(when+", status", func(ctx context.Context) error {
			got, err := report(ctx)
			if err != nil {
				return err
			}
			var have []string
			for _, p := range got.Problems {
				have = append(have, p.Object+" "+p.Field)
			}
			if fmt.Sprint(have) != fmt.Sprint(fields) || (got.Leaving == "") != (len(fields) == 0) {
				return fmt.Errorf("status has %v, and says %q, want %v", have, got.Leaving, fields)
			}
			return nil
		})
	}
	health := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10256"), Timeout: lab.DefaultTimeout}
	wantHealth := func(when string, healthz int, text string) {
		t.Helper()
		s.eventually(when+", health", func(context.Context) error {
			page, err := s.lab.Get(health, "/healthz")
			if err == nil && (page.Status != healthz || !strings.Contains(page.Text, text)) {
				err = fmt.Errorf("/healthz says\n%s", page.Text)
			}
			return err
		})
		if page, err := s.lab.Get(health, "/livez"); err != nil || page.Status != 200 {
			t.Errorf("%s, /livez says %d, %v", when, page.Status, err)
		}
	}
	wantStatus("without a Node object", "Node node1 metadata.name", "Node node1 spec.podCIDRs")
	wantHealth("without a Node object", 503, `"nodeEligible":false,"healthy":true`)
	s.eventually("an Event reports the Node", func(ctx context.Context) error {
		events, err := s.client.EventsV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Regarding.Kind == "Node" && e.Regarding.Name == "node1" && strings.Contains(e.Note, "there is no Node object of this name") {
				return nil
			}
		}
		return fmt.Errorf("none of %d Events does", len(events.Items))
	})
	text, err := os.ReadFile(s.proxy.Log)
	if err != nil || strings.Count(string(text), "there is no Node object of this name") != 1 {
		t.Errorf("the log does not say so once: %v\n%s", err, text)
	}

	s.createNode("node1")
	wantStatus("without a pod CIDR", "Node node1 spec.podCIDRs")
	wantHealth("without a pod CIDR", 503, `"nodeEligible":false,"healthy":true`)
	patch := []byte(`{"spec":{"podCIDR":"10.244.1.0/24","podCIDRs":["10.244.1.0/24"]}}`)
	if _, err := nodes.Patch(t.Context(), "node1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	wantStatus("with all there is")
	wantHealth("with all there is", 200, `"nodeEligible":true,"healthy":true`)
	s.expect("with all there is", answered(clusterFlows(web), "pod1"))
}
