package kubernetes

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"sluice/internal/model"
)

func TestSyncedOnceEveryKindIsListed(t *testing.T) {
	onBoth(t, func(t *testing.T, server *apiServer) {
		server.put(servicesPath, aService("web", "10.96.0.1"))
		server.put(slicesPath, aSlice("web-1", "10.0.0.1"))
		server.put(nodesPath, aNode("here", "192.0.2.1"))
		server.put(cidrsPath, aCIDR("10.96.0.0/16"))
		release := make(chan struct{})
		server.setFault(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == nodesPath {
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}
			server.answer(w, r)
		})
		f := follow(t, server, nil)
		f.eventually("waiting for the Node", func() bool {
			return cmp.Equal(f.source.Status().Waiting, []string{"Node"})
		})
		if f.timesSynced() != 0 {
			t.Error("in sync without the Node")
		}
		close(release)
		f.inSync()
		for _, word := range []string{
			"service default/web [10.96.0.1]", "slice default/web-1 of web [10.0.0.1]",
			"node here [192.0.2.1]", "cidr kubernetes [10.96.0.0/16]",
		} {
			if !f.heard(word) {
				t.Errorf("in sync without: %s", word)
			}
		}
		if status := f.source.Status(); !f.source.Connected() || status.Reason != nil || len(status.Waiting) > 0 {
			t.Errorf("all is well, and the status says %+v", status)
		}
	})
}

func TestEmptyClusterIsSynced(t *testing.T) {
	onBoth(t, func(t *testing.T, server *apiServer) {
		f := follow(t, server, nil)
		f.inSync()
		if diff := cmp.Diff([][]string(nil), f.since(0)); diff != "" {
			t.Errorf("updates (-want +got)\n%s", diff)
		}
	})
}

func TestSelectors(t *testing.T) {
	onBoth(t, func(t *testing.T, server *apiServer) {
		f := follow(t, server, nil)
		f.inSync()
		for path, want := range map[string]url.Values{
			servicesPath: {
				"labelSelector": {"!service.kubernetes.io/service-proxy-name"},
				"fieldSelector": {"spec.clusterIP!=None"},
			},
			slicesPath: {"labelSelector": {"!service.kubernetes.io/headless"}},
			nodesPath:  {"fieldSelector": {"metadata.name=here"}},
			cidrsPath:  {},
		} {
			asked := server.query(path)
			for _, key := range []string{"labelSelector", "fieldSelector"} {
				if diff := cmp.Diff(want.Get(key), asked.Get(key)); diff != "" {
					t.Errorf("%s of %s (-want +got)\n%s", key, path, diff)
				}
			}
		}
	})
}

func TestChangesArriveOneByOne(t *testing.T) {
	onBoth(t, func(t *testing.T, server *apiServer) {
		f := follow(t, server, nil)
		f.inSync()
		for _, step := range []struct {
			do   func()
			want string
		}{
			{func() { server.put(servicesPath, aService("web", "10.96.0.1")) }, "service default/web [10.96.0.1]"},
			{func() { server.put(slicesPath, aSlice("web-1", "10.0.0.1")) }, "slice default/web-1 of web [10.0.0.1]"},
			{func() { server.put(slicesPath, aSlice("web-1", "10.0.0.1", "10.0.0.2")) }, "slice default/web-1 of web [10.0.0.1 10.0.0.2]"},
			{func() { server.put(servicesPath, aService("web", "None")) }, "no service default/web"},
			{func() { server.put(servicesPath, aService("web", "10.96.0.2")) }, "service default/web [10.96.0.2]"},
			{func() { server.remove(slicesPath, aSlice("web-1")) }, "no slice default/web-1"},
			{func() { server.put(cidrsPath, aCIDR("10.96.0.0/16")) }, "cidr kubernetes [10.96.0.0/16]"},
			{func() { server.remove(cidrsPath, aCIDR()) }, "no cidr kubernetes"},
		} {
			mark := f.mark()
			step.do()
			f.hears(step.want)
			if diff := cmp.Diff([][]string{{step.want}}, f.since(mark)); diff != "" {
				t.Errorf("updates (-want +got)\n%s", diff)
			}
		}
	})
}

func TestIrrelevantUpdatesAreDropped(t *testing.T) {
	onBoth(t, func(t *testing.T, server *apiServer) {
		web, slice, node := aService("web", "10.96.0.1"), aSlice("web-1", "10.0.0.1"), aNode("here", "192.0.2.1")
		server.put(servicesPath, web)
		server.put(slicesPath, slice)
		server.put(nodesPath, node)
		f := follow(t, server, nil)
		f.inSync()
		mark := f.mark()

		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Reason: "Heartbeat"}}
		server.put(nodesPath, node, aNode("elsewhere", "192.0.2.9"), aNode("here", "192.0.2.2"))
		web.Annotations = map[string]string{"note": "x"}
		server.put(servicesPath, web, aService("web", "10.96.0.2"))
		slice.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: "2026-01-02T03:04:05Z"}
		server.put(slicesPath, slice, aSlice("web-1", "10.0.0.2"))
		for _, word := range []string{"node here [192.0.2.2]", "service default/web [10.96.0.2]", "slice default/web-1 of web [10.0.0.2]"} {
			f.hears(word)
		}
		if got := len(f.since(mark)); got != 3 {
			t.Errorf("%d updates for 3 changes: %v", got, f.since(mark))
		}
	})
}

func TestNodeEvents(t *testing.T) {
	onBoth(t, func(t *testing.T, server *apiServer) {
		f := follow(t, server, nil)
		f.inSync()
		f.read(func(s *model.State) {
			if s.Node() != nil {
				t.Error("there is a Node before it was created")
			}
		})
		server.put(nodesPath, aNode("here", "192.0.2.1"))
		f.hears("node here [192.0.2.1]")
		server.put(nodesPath, aNode("here", "192.0.2.2"))
		f.hears("node here [192.0.2.2]")
		server.remove(nodesPath, aNode("here"))
		f.hears("no node")
	})
}

// TestAllNodes: with direct return, the addresses of other nodes are followed by one list and one watch.
func TestAllNodes(t *testing.T) {
	onBoth(t, func(t *testing.T, server *apiServer) {
		server.put(nodesPath, aNode("far", "192.0.2.9"))
		f := follow(t, server, func(o *Options) { o.Proxy.AllNodes = true })
		f.inSync()
		f.hears("peer far [192.0.2.9]")
		if selector := server.query(nodesPath).Get("fieldSelector"); selector != "" {
			t.Errorf("nodes are selected by %q", selector)
		}
		server.put(nodesPath, aNode("here", "192.0.2.1"))
		f.hears("node here [192.0.2.1]")
		server.put(nodesPath, aNode("far", "192.0.2.8"))
		f.hears("peer far [192.0.2.8]")
		server.remove(nodesPath, aNode("far"))
		f.hears("no peer far")
		f.read(func(s *model.State) {
			if s.Node() == nil || len(s.Peers()) > 0 {
				t.Errorf("the node is %v, others are %v", s.Node(), s.Peers())
			}
		})
	})
}

func TestNothingAfterRunReturned(t *testing.T) {
	server := newAPIServer(t, true, servicesPath, slicesPath, nodesPath, cidrsPath)
	f := follow(t, server, nil)
	f.inSync()
	f.cancel()
	if err := <-f.ended; err != nil {
		t.Fatal(err)
	}
	mark := f.mark()
	server.put(servicesPath, aService("late", "10.96.0.1"))
	f.source.gate.update([]model.Event{model.SetNode{}})
	f.source.gate.listed("Service")
	if late := f.since(mark); len(late) > 0 || f.timesSynced() != 1 {
		t.Errorf("after Run had returned came %v", late)
	}
	if lines := f.logged("Cannot reach"); len(lines) > 0 {
		t.Errorf("the end was taken for a failure:\n%s", strings.Join(lines, "\n"))
	}
}

func TestRunEndsDuringOutage(t *testing.T) {
	server := newAPIServer(t, true, servicesPath, slicesPath, nodesPath, cidrsPath)
	server.stop()
	f := follow(t, server, nil)
	f.eventually("a failure", func() bool { return f.source.Status().Reason != nil })
	f.cancel()
	if err := <-f.ended; err != nil {
		t.Fatal(err)
	}
	server.start()
}
