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

// DifferentEndpoints walks over two pools at once and yields what is only in one of them, as Merge
// does. It takes little time for pools that are mostly the same, however large.
func DifferentEndpoints(old, new []Endpoint) iter.Seq2[*Endpoint, *Endpoint] {
	return func(yield func(old, new *Endpoint) bool) {
		if samePool(old, new) {
			return
		}
		for len(old) > 0 && len(new) > 0 {
			a, b := &old[0], &new[0]
			if a.AddrPort == b.AddrPort {
				old, new = old[1:], new[1:]
				continue
			}
			if a.Compare(b.AddrPort) < 0 {
				b, old = nil, old[1:]
			} else {
				a, new = nil, new[1:]
			}
			if !yield(a, b) {
				return
			}
		}
		for i := range old {
			if !yield(&old[i], nil) {
				return
			}
		}
		for i := range new {
			if !yield(nil, &new[i]) {
				return
			}
		}
	}
}

// samePool reports whether two pools are one in memory.
func samePool(a, b []Endpoint) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
