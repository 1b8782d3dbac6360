package source

import "unique"

// intern returns the one copy of s that all values share: of what many objects have in common, such as
// namespaces and nodes. A name that one or two objects have takes less memory by itself than its place
// among those that are shared.
func intern(s string) string {
	if s == "" {
		return ""
	}
	return unique.Make(s).Value()
}

func internPtr(s *string) string {
	if s == nil {
		return ""
	}
	return intern(*s)
}

// exact returns s without spare capacity, and nil if it is empty.
func exact[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	if len(s) == cap(s) {
		return s
	}
	return append(make([]T, 0, len(s)), s...)
}

// distinct returns the values of s in order, without duplicates.
func distinct[T comparable](s []T) []T {
	if len(s) < 2 {
		return exact(s)
	}
	seen := make(map[T]struct{}, len(s))
	out := make([]T, 0, len(s))
	for _, v := range s {
		if _, ok := seen[v]; !ok {
			seen[v] = struct{}{}
			out = append(out, v)
		}
	}
	return exact(out)
}
