package plan

import "iter"

// Merge walks over two sorted lists at once. It yields pointers to what is equal in
// both, and otherwise one pointer and nil.
func Merge[T any](old, new []T, compare func(a, b T) int) iter.Seq2[*T, *T] {
	return func(yield func(old, new *T) bool) {
		i, j := 0, 0
		for i < len(old) && j < len(new) {
			a, b := &old[i], &new[j]
			order := compare(*a, *b)
			if order <= 0 {
				i++
			} else {
				a = nil
			}
			if order >= 0 {
				j++
			} else {
				b = nil
			}
			if !yield(a, b) {
				return
			}
		}
		for ; i < len(old); i++ {
			if !yield(&old[i], nil) {
				return
			}
		}
		for ; j < len(new); j++ {
			if !yield(nil, &new[j]) {
				return
			}
		}
	}
}

// MergeEndpoints is Merge for pools, whether endpoints are local or not.
func MergeEndpoints(old, new []Endpoint) iter.Seq2[*Endpoint, *Endpoint] {
	return Merge(old, new, func(a, b Endpoint) int { return a.Compare(b.AddrPort) })
}
