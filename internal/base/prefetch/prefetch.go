// Package prefetch runs an iterator in its own goroutine, one value ahead of its
// consumer, so that two processors can share the work.
package prefetch

import "iter"

// Seq returns the same values as seq, in the same order. seq runs in a goroutine
// of its own, at most one value ahead of the value in use. It has returned when
// the loop ends, also if the caller breaks out of it.
func Seq[T any](seq iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		values, stop := make(chan T), make(chan struct{})
		go func() {
			defer close(values)
			for v := range seq {
				select {
				case values <- v:
				case <-stop:
					return
				}
			}
		}()
		defer func() {
			close(stop)
			for range values { // until seq has returned
			}
		}()
		for v := range values {
			if !yield(v) {
				return
			}
		}
	}
}
