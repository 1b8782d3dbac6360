package testkit

import (
	"os"
	"syscall"
)

// WriteExecutable writes a program that can be run at once. A process that another test starts
// meanwhile would have the open file for a moment, and the kernel runs no file that is open for
// writing.
func WriteExecutable(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755)
}
