//go:build !unix

package testkit

import "errors"

// MakeFIFO returns an error: files of this system are no pipes.
func MakeFIFO(string) error { return errors.ErrUnsupported }
