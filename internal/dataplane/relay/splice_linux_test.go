package relay

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
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
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_SPLICE},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program))); err != 0 {
		return fmt.Errorf("seccomp: %w", err)
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
