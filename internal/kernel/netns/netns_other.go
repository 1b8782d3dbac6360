//go:build !linux

package netns

import "errors"

// Do calls f in the caller's network namespace, which is 0: other systems have no more than one.
func Do(ns int, f func() error) error {
	if ns != 0 {
		return errors.New("only Linux has network namespaces")
	}
	return f()
}
