package testkit

import (
	"os"
	"testing"
)

// GuestVariable names the environment variable that is set in the virtual machines of test/vm.
const GuestVariable = "SLUICE_GUEST"

// InGuest reports whether this is such a virtual machine. Its processor is emulated, and so
// ten times slower.
func InGuest() bool { return os.Getenv(GuestVariable) != "" }

// NotInGuest skips a test in a guest, and says why it need not or cannot run there.
func NotInGuest(t testing.TB, why string) {
	t.Helper()
	if InGuest() {
		t.Skip("not in a guest: " + why)
	}
}
