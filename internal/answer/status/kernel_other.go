//go:build !linux

package status

import "runtime"

func kernelVersion() string { return runtime.GOOS }
