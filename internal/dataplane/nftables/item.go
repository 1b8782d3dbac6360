//go:build linux

package nftables

import "sluice/internal/plan"

// item is the change of one frontend.
type item struct {
	table *table
	key   plan.Key
	// now is what the kernel holds, nil for nothing. It belongs to old, or was
	// read from the kernel.
	now      *programmed
	old, new *frontend // nil for none
	ops      []op
	// waiting are the frontends that wait for a pool of which this is a part.
	waiting []plan.Key
}

// prepare computes the operations.
func (it *item) prepare(w *opWriter) {
	from := len(w.ops)
	w.difference(it.key, it.now, it.want())
	it.ops = w.ops[from:len(w.ops):len(w.ops)]
}

// want is what the kernel is to hold, nil for nothing.
func (it *item) want() *programmed {
	if it.new == nil {
		return nil
	}
	return &it.new.programmed
}

// prepareAll computes operations again that an encoded chunk does not keep.
func prepareAll(items []*item) {
	w := newOpWriter()
	for _, it := range items {
		it.prepare(w)
	}
}

func forgetOps(items []*item) {
	for _, it := range items {
		it.ops = nil
	}
}

// sizeOf estimates how many elements the items will write.
func sizeOf(items []*item) int {
	n := 0
	for _, it := range items {
		n++
		if it.new != nil && it.now == nil {
			n += it.new.size()
		}
		if it.new == nil && it.now != nil {
			n += it.now.size()
		}
	}
	return n
}
