package dataplane

import (
	"iter"

	"sluice/internal/model"
)

// OfFamily yields the values of a family; of returns that of a value.
func OfFamily[T any](family model.Family, of func(T) model.Family, values iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for v := range values {
			if of(v) == family && !yield(v) {
				return
			}
		}
	}
}

// Count returns how many values there are.
func Count[T any](values iter.Seq[T]) (n int) {
	for range values {
		n++
	}
	return n
}
