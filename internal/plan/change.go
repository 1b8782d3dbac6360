package plan

import (
	"iter"
	"net/netip"
)

// Change is the difference between two Desireds. Its values are immutable.
type Change struct {
	// Revision is that of the State that the change leads to.
	Revision uint64
	// Settings is nil if they did not change.
	Settings *Settings
	// Set are frontends that are new or changed, Removed those that are gone.
	Set     []*Frontend
	Removed []Key
	// Serving are frontends that differ in AlsoServing, Watched, Ejected, Released or MasqueradeCause
	// only.
	// The kernel does not need to be changed for them.
	Serving []*Frontend
	// Before are the frontends of Set, Removed and Serving as they were. A new one has
	// none. Nor has one of Removed that came and went before anybody was told of it:
	// the kernel may know some of it nevertheless.
	Before map[Key]*Frontend

	ClusterIPsAdded, ClusterIPsRemoved []netip.Addr

	// HealthPortsAdded and HealthPortsRemoved are health check ports. One that
	// moved from one Service to another is in both. Modes whose rules have to
	// admit clients there use them.
	HealthPortsAdded, HealthPortsRemoved []uint16

	// HealthChecks and Problems say that those of Desired changed. Problems is
	// also set if refused objects changed, or if it changed on which objects
	// with problems this node records Events.
	HealthChecks, Problems bool
}

// Empty reports whether the kernel does not need to be changed.
func (c *Change) Empty() bool {
	return c.Settings == nil && len(c.Set) == 0 && len(c.Removed) == 0 &&
		len(c.ClusterIPsAdded) == 0 && len(c.ClusterIPsRemoved) == 0 &&
		len(c.HealthPortsAdded) == 0 && len(c.HealthPortsRemoved) == 0
}

// Frontends yields each frontend of the change as it was and as it is: the former is nil
// for a new one, the latter for one that is gone.
func (c *Change) Frontends() iter.Seq2[*Frontend, *Frontend] {
	return func(yield func(before, now *Frontend) bool) {
		for _, list := range [][]*Frontend{c.Set, c.Serving} {
			for _, f := range list {
				if !yield(c.Before[f.Key], f) {
					return
				}
			}
		}
		for _, key := range c.Removed {
			if before := c.Before[key]; before != nil && !yield(before, nil) {
				return
			}
		}
	}
}

// replace records what a frontend was before.
func (c *Change) replace(before *Frontend) {
	if c.Before == nil {
		c.Before = map[Key]*Frontend{}
	}
	c.Before[before.Key] = before
}
