//go:build !linux && !windows

package status

import "runtime"

func kernelVersion() string { return runtime.GOOS }
