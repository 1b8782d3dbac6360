package kubernetes

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/model"
	"sluice/internal/source"
)

// wideSlice has that many endpoints.
func wideSlice(name string, endpoints int) *model.Slice {
	return &model.Slice{Name: model.Name{Namespace: "default", Name: name}, Endpoints: make([]model.Endpoint, endpoints), Ports: make([]model.SlicePort, 1)}
}

// TestClusterThatDoesNotFit has less room than the cluster needs, then more, then less than what comes.
func TestClusterThatDoesNotFit(t *testing.T) {
	onBoth(t, func(t *testing.T, server *apiServer) {
		for i := range 3 {
			server.put(slicesPath, aSlice(fmt.Sprint("web-", i), "10.0.0.1", "10.0.0.2", "10.0.0.3"))
		}
		server.put(servicesPath, aService("web", "10.96.0.1"))
		three := source.Size([]model.Event{model.SetSlice{Slice: wideSlice("web-0", 3)}})
		var room atomic.Int64
		room.Store(2*three + 2000)
		f := follow(t, server, func(o *Options) { o.Room, o.roomPeriod = room.Load, 5*time.Millisecond })
		f.eventually("a list that does not fit", func() bool { return len(f.logged("Too many objects")) > 0 })
		if status := f.source.Status(); status.Connected || f.timesSynced() > 0 || status.Reason == nil ||
			!strings.Contains(status.Remedy, "raise the memory limit of the container by ") {
			t.Errorf("synced %d times; status %+v", f.timesSynced(), status)
		}

		room.Store(4*three + 2000)
		f.inSync()
		for i := range 3 {
			f.hears(fmt.Sprintf("slice default/web-%d of web [10.0.0.1 10.0.0.2 10.0.0.3]", i))
		}
		f.eventually("being connected", f.source.Connected)

		server.put(slicesPath, aSlice("web-3", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"))
		f.eventually("an object that does not fit", func() bool { return !f.source.Connected() })
		server.put(slicesPath, aSlice("web-0", "10.0.0.9")) // smaller than before
		f.hears("slice default/web-0 of web [10.0.0.9]")
		if f.heard("slice default/web-3 of web [10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6 10.0.0.7]") {
			t.Error("an object is passed on that has no room")
		}
		room.Store(0)
		f.hears("slice default/web-3 of web [10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6 10.0.0.7]")
		f.eventually("being connected again", f.source.Connected)
	})
}
