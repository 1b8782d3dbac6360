//go:build linux

package lab_test

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

func TestMain(m *testing.M) {
	if refused := os.Getenv(refusedCall); refused != "" {
		fmt.Fprintln(os.Stderr, becomeProxyWithout(refused))
		os.Exit(1)
	}
	// Mostly labs wait for answers that do not come, and for processes that start.
	testkit.Overlap(3)
	os.Exit(m.Run())
}

// refusedCall names the environment variable that makes this program the proxy, without a system
// call: its number and the error that it gets.
const refusedCall = "SLUICE_TEST_REFUSED_CALL"

// becomeProxyWithout returns only if that cannot be.
func becomeProxyWithout(refused string) error {
	var number uint32
	var errno unix.Errno
	if _, err := fmt.Sscanf(refused, "%d %d", &number, &errno); err != nil {
		return err
	}
	binary, err := lab.Binary()
	if err != nil {
		return err
	}
	if err := testkit.RefuseCall(number, errno); err != nil {
		return err
	}
	return unix.Exec(binary, append([]string{binary}, os.Args[1:]...), os.Environ())
}
