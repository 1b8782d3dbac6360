package instancelock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/testkit"
)

func TestSecondProxyWaits(t *testing.T) {
	netnstest.Enter(t)
	lines := make(chan string, 16)
	logger := funcr.New(func(_, args string) { lines <- args }, funcr.Options{})
	first, err := Name("").Acquire(t.Context(), logger, clock.RealClock{}, func(Holder) {})
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Name("").Acquire(short, logger, clock.RealClock{}, func(Holder) {}); err == nil {
		t.Fatal("two have the lock")
	}
	if line := <-lines; !strings.Contains(line, "Another proxy") || !strings.Contains(line, fmt.Sprintf(`"pid"=%d`, os.Getpid())) {
		t.Errorf("it does not say who has the lock: %s", line)
	}
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	second, err := Name("").Acquire(t.Context(), logger, clock.RealClock{}, func(Holder) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Release(); err != nil {
		t.Fatal(err)
	}
}

// Proxies of different names do not wait for each other, and those of one name do.
func TestNamesHaveLocksOfTheirOwn(t *testing.T) {
	netnstest.Enter(t)
	for _, name := range []Name{"", "trial", "trial-1", "1"} {
		lock, err := name.Acquire(t.Context(), logr.Discard(), clock.RealClock{}, func(Holder) {})
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Release()
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	waited := false
	if _, err := Name("trial").Acquire(short, logr.Discard(), clock.RealClock{}, func(Holder) { waited = true }); err == nil || !waited {
		t.Errorf("two have the lock of one name: %v", err)
	}
	if Name("none").Held() || !Name("trial").Held() {
		t.Error("it is not told who holds which lock")
	}
}

// The holder knows of another proxy that waits, unless it has just come or given up.
func TestWaiter(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	l := &Lock{clock: c}
	start := c.Now()
	for _, step := range []struct {
		at    time.Duration
		asks  Holder // 0 for nobody
		waits Holder
	}{
		{0, 7, 0}, {waitsAfter - time.Second, 0, 0}, {waitsAfter - time.Second, 7, 0}, // a gap: it begins again
		{waitsAfter, 7, 0}, {waitsAfter + 4*time.Second, 7, 0}, {waitsAfter + 8*time.Second, 7, 0}, {2*waitsAfter - time.Second, 7, 7},
		{2*waitsAfter + 3*time.Second, 0, 7}, {2*waitsAfter + 3*time.Second, 8, 0}, {3 * waitsAfter, 0, 0},
	} {
		c.SetTime(start.Add(step.at))
		if step.asks != 0 {
			l.asked(step.asks)
		}
		who, _, waits := l.Waiter()
		if waits != (step.waits != 0) || waits && who != step.waits {
			t.Errorf("after %v: %v, %v", step.at, who, waits)
		}
	}
}

// Whoever asks is noticed by the holder.
func TestHolderIsAsked(t *testing.T) {
	netnstest.Enter(t)
	first, err := Name("").Acquire(t.Context(), logr.Discard(), clock.RealClock{}, func(Holder) {})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Release()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Name("").Acquire(short, logr.Discard(), clock.RealClock{}, func(Holder) {}); err == nil {
		t.Fatal("two have the lock")
	}
	testkit.Eventually(t, func() error {
		first.mu.Lock()
		defer first.mu.Unlock()
		if int(first.waiter) != os.Getpid() {
			return fmt.Errorf("the holder was asked by %d", first.waiter)
		}
		return nil
	})
}

// strangerVariable makes the test binary bind names of the lock.
const strangerVariable = "SLUICE_TEST_SEAT_STRANGER"

// waiterVariable makes the test binary wait for the lock.
const waiterVariable = "SLUICE_TEST_SEAT_WAITER"

// flooderVariable makes the test binary connect to the lock's socket all the time, and
// holderVariable makes it take the lock.
const (
	flooderVariable = "SLUICE_TEST_SEAT_FLOODER"
	holderVariable  = "SLUICE_TEST_SEAT_HOLDER"
)

// flood fills the queue of the holder's socket.
func flood() {
	for {
		var held []net.Conn
		for range 800 {
			if c, err := net.DialUnix("unix", nil, Name("").socketAddr(0)); err == nil {
				held = append(held, c)
			}
		}
		for _, c := range held {
			c.Close()
		}
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(holderVariable) != "" {
		if _, err := Name("").Acquire(context.Background(), logr.Discard(), clock.RealClock{}, func(Holder) {}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		child := exec.Command("sleep", "60")
		if err := child.Start(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("here with", child.Process.Pid)
		select {} // until it is killed
	}
	if n, err := strconv.Atoi(os.Getenv(flooderVariable)); err == nil {
		for range n {
			go flood()
		}
		fmt.Println("here")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
		os.Exit(0)
	}
	if os.Getenv(waiterVariable) != "" {
		_, err := Name("").Acquire(context.Background(), logr.Discard(), clock.RealClock{}, func(h Holder) {
			fmt.Println("waiting for", h)
			os.Exit(0)
		})
		fmt.Println("took the lock", err)
		os.Exit(0)
	}
	if n, err := strconv.Atoi(os.Getenv(strangerVariable)); err == nil {
		for i := range n {
			if _, err := net.ListenUnix("unix", Name("").socketAddr(i)); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
		fmt.Println("here")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// stranger runs this binary as a process without rights, until the test ends or stop is called:
// as nobody, or as root without capabilities, as a container on the node's network may be.
func stranger(t *testing.T, root bool, variable string, value int) {
	t.Helper()
	binary := filepath.Join(os.TempDir(), fmt.Sprintf("sluice-foreign-%d", os.Getpid())) // others must be able to run it
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = testkit.WriteExecutable(binary, self)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(binary) })
	user := []string{"--reuid=65534", "--regid=65534"}
	if root {
		user = nil
	}
	cmd := exec.Command("setpriv", slices.Concat(user, []string{"--clear-groups", "--inh-caps=-all", "--bounding-set=-all", binary})...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", variable, value))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "here\n" {
		t.Fatalf("the foreign process says %q", line)
	}
}

// A process without rights that takes a name of the lock, or all of them, keeps no proxy from
// starting, and no second one from waiting for the first.
func TestUnrelatedProcessesAreIgnored(t *testing.T) {
	for _, names := range []int{1, socketNames} {
		for _, root := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d names, root %t", names, root), func(t *testing.T) {
				netnstest.Enter(t)
				stranger(t, root, strangerVariable, names)
				first, err := Name("").Acquire(t.Context(), logr.Discard(), clock.RealClock{}, func(Holder) {})
				if err != nil {
					t.Fatal(err)
				}
				defer first.Release()
				refusesSecond(t)
			})
		}
	}
}

// refusesSecond fails if another gets the lock beside its holder.
func refusesSecond(t *testing.T) {
	t.Helper()
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Name("").Acquire(short, logr.Discard(), clock.RealClock{}, func(Holder) {}); err == nil {
		t.Error("two have the lock")
	}
}

// A process without rights that leaves no room in the queue of the holder's socket does not
// make it look as if there were no holder.
func TestFloodHidesNoHolder(t *testing.T) {
	netnstest.Enter(t)
	first, err := Name("").Acquire(t.Context(), logr.Discard(), clock.RealClock{}, func(Holder) {})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Release()
	stranger(t, false, flooderVariable, 4)
	for range 5 {
		refusesSecond(t)
	}
	if !Name("").Held() {
		t.Error("nobody holds the lock")
	}
}

// The lock is free again when its process has been killed and the commands that it ran have
// ended, and not before.
func TestLockEndsWithItsProcess(t *testing.T) {
	netnstest.Enter(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), holderVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Fscanf(out, "here with %d\n", &child); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceValue(func() error { return syscall.Kill(child, syscall.SIGKILL) })
	t.Cleanup(func() { _ = kill() })
	refusesSecond(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = cmd.Process.Wait()
	if !Name("").Held() {
		t.Error("the lock is free while a command of its holder runs")
	}
	if err := kill(); err != nil {
		t.Fatal(err)
	}
	next, err := Name("").Acquire(t.Context(), logr.Discard(), clock.RealClock{}, func(Holder) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Release(); err != nil {
		t.Error(err)
	}
	if Name("").Held() {
		t.Error("somebody holds the lock")
	}
}

// Without the right to program, as in the sandbox, the sockets are the lock. Those of nobody
// keep no proxy from starting.
func TestSocketsAreTheLockWithoutGroups(t *testing.T) {
	for _, names := range []int{1, socketNames} {
		t.Run(fmt.Sprint(names), func(t *testing.T) {
			netnstest.Enter(t)
			stranger(t, false, strangerVariable, names)
			acquire := func(ctx context.Context) *Lock {
				t.Helper()
				a := &attempt{logger: logr.Discard()}
				for ctx.Err() == nil {
					lock, _, err := a.try()
					if err != nil {
						t.Fatal(err)
					}
					if lock != nil {
						return lock
					}
				}
				return nil
			}
			first := acquire(t.Context())
			defer first.Release()
			if names == socketNames {
				return // the holder is not known then
			}
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if acquire(short) != nil {
				t.Error("two have the lock")
			}
		})
	}
}

// A proxy in another PID namespace, as in another pod of the node, cannot be named, and
// has the lock all the same.
func TestHolderInAnotherPIDNamespace(t *testing.T) {
	netnstest.Enter(t)
	first, err := Name("").Acquire(t.Context(), logr.Discard(), clock.RealClock{}, func(Holder) {})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Release()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), waiterVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "waiting for another kube-proxy (its pid is not known here") {
		t.Errorf("another pod says %q, %v", out, err)
	}
}

// Who waits for long says so again.
func TestLongWaitIsLoggedAgain(t *testing.T) {
	netnstest.Enter(t)
	first, err := Name("").Acquire(t.Context(), logr.Discard(), clock.RealClock{}, func(Holder) {})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Release()
	lines := make(chan string, 16)
	logger := funcr.New(func(_, args string) { lines <- args }, funcr.Options{})
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	wait, holder := &waitLog{logger: logger, clock: clock, waits: func(Holder) {}}, Name("").proxyAt(0)
	if holder == nil {
		t.Fatal("the lock is free")
	}
	for range 5 * remindEvery / retryEvery {
		wait.report(*holder)
		clock.Step(retryEvery)
	}
	if n := len(lines); n != 5 {
		t.Errorf("it logged %d times in five minutes", n)
	}
	<-lines
	if line := <-lines; !strings.Contains(line, `"waiting"="1m0s"`) || !strings.Contains(line, "only one kube-proxy can serve a node") {
		t.Errorf("it says %s", line)
	}
}
