package ahead

import "iter"

// Of returns the same values as seq, in the same order. Seq runs in a goroutine
// of its own and is at most one value ahead of the value that is in use. It has
// ended when the walk ends, also when the caller breaks off.
func Of[T any](seq iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		values, enough := make(chan T), make(chan struct{})
		go func() {
			defer close(values)
			for v := range seq {
				select {
				case values <- v:
				case <-enough:
					return
				}
			}
		}()
		defer func() {
			close(enough)
			for range values { // until seq has ended
			}
		}()
		for v := range values {
			if !yield(v) {
				return
			}
		}
	}
}
