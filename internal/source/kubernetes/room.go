package kubernetes

import (
	"fmt"
	"sync"

	"sluice/internal/base/printable"
)

// room is the memory that the objects of all kinds share. Without it a cluster that is too large would have
// the kernel kill the proxy, again and again, each time after it listed everything.
type room struct {
	limit func() int64 // bytes, 0 for no limit

	mu   sync.Mutex
	used int64
}

// take takes bytes, or gives them back if there are less than none. It reports false if they are not there.
func (r *room) take(bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if limit := r.limit(); bytes > 0 && limit > 0 && r.used+bytes > limit {
		return false
	}
	r.used += bytes
	return true
}

// add changes what is used, whatever the limit is.
func (r *room) add(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used += bytes
}

// fits reports whether there is room for that much more, and some to spare.
func (r *room) fits(bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := r.limit()
	return limit <= 0 || r.used+bytes+bytes/8 <= limit
}

// missing is what had no room.
type missing struct {
	objects int
	bytes   int64
}

// noRoomError says that objects had no room.
type noRoomError struct {
	missing
	kind  string
	limit int64
}

func (e *noRoomError) Error() string {
	return fmt.Sprintf("%s of %s had no room: the proxy has %d MB for objects, and they need about %d MB more",
		printable.Count(e.objects, "object"), e.kind, e.limit>>20, max(1, e.bytes>>20))
}

func (e *noRoomError) remedy() string {
	return fmt.Sprintf("raise the memory limit of the container by %d MiB or more; it is read again within seconds, without a restart",
		(e.bytes+e.bytes/4)>>20+16)
}
