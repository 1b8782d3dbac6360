package relay

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/internal/testkit"
)

// withoutSplice names the environment variable with the error that splice(2) is to return in
// this process.
const withoutSplice = "SLUICE_TEST_WITHOUT_SPLICE"

func TestMain(m *testing.M) {
	if code := os.Getenv(withoutSplice); code != "" {
		if err := forbidSplice(code); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// forbidSplice makes splice(2) fail in all threads, as seccomp does in containers.
func forbidSplice(code string) error {
	number, err := strconv.Atoi(code)
	if err != nil {
		return err
	}
	errno := unix.Errno(number)
	if err := testkit.RefuseCall(unix.SYS_SPLICE, errno); err != nil {
		return err
	}
	if _, err := unix.Splice(0, nil, 0, nil, 1, 0); !errors.Is(err, errno) {
		return fmt.Errorf("splice is allowed: %v", err)
	}
	return nil
}

// Where splice is missing or forbidden, data is copied.
func TestWithoutSplice(t *testing.T) {
	for name, errno := range map[string]unix.Errno{"missing": unix.ENOSYS, "forbidden": unix.EPERM, "of no use": unix.EINVAL} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^(TestManyBytesInBothDirections|TestHalfClose|TestResetIsForwarded)$")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", withoutSplice, errno))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
