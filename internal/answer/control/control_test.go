package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"

	"sluice/internal/testkit"
)

type echoed struct {
	Text string `json:"text"`
}

// started is a server that runs until the test ends.
type started struct {
	*Server
	stop func()

	mu  sync.Mutex
	log strings.Builder
}

func start(t *testing.T, path string, edits ...func(*Server)) *started {
	t.Helper()
	s := &started{}
	s.Server = New(Options{Path: path, Logger: funcr.New(func(_, line string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintln(&s.log, line)
	}, funcr.Options{Verbosity: 1})})
	parse := func(v url.Values, q *echoed) error { q.Text = v.Get("text"); return nil }
	s.Handle("/echo", Page(parse, func(_ context.Context, q *echoed) (any, error) {
		switch q.Text {
		case "wrong":
			return nil, BadRequest(errors.New("text is wrong: use another"))
		case "broken":
			return nil, errors.New("broken inside")
		default:
			return q, nil
		}
	}))
	s.HandleLarge("/post", 1<<20, Page(nil, func(_ context.Context, text *string) (any, error) {
		if *text == "wrong" {
			return nil, BadRequest(errors.New("text is wrong: use another"))
		}
		return len(*text), nil
	}))
	for _, edit := range edits {
		edit(s.Server)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// logged waits until a line of the log has the text.
func (s *started) logged(t *testing.T, text string) {
	t.Helper()
	testkit.Until(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(s.log.String(), text)
	})
}

func ask(t *testing.T, path, text string) (string, error) {
	t.Helper()
	c := NewClient(path)
	defer c.Close()
	var answer echoed
	err := c.Ask(t.Context(), "/echo", &echoed{text}, &answer)
	return answer.Text, err
}

func socketPath(t *testing.T) string { return filepath.Join(t.TempDir(), "sluice", "proxy.sock") }

const answering = "Answering on the control socket"

func TestProxyAnswersOnItsSocket(t *testing.T) {
	path := socketPath(t)
	s := start(t, path)
	s.logged(t, answering)
	hostile := "<b>\x1b[2J\"\n" + strings.Repeat("x", 253)
	if got, err := ask(t, path, hostile); err != nil || got != hostile {
		t.Errorf("it answered %q, %v", got, err)
	}
	for in, want := range map[string]string{"wrong": "text is wrong: use another", "broken": "broken inside"} {
		if _, err := ask(t, path, in); err == nil || err.Error() != want {
			t.Errorf("the error of %q is %v, want %q", in, err, want)
		}
	}
	if _, err := ask(t, path, strings.Repeat("x", 1<<20)); err == nil {
		t.Error("a request of a megabyte was answered")
	}
	for file, want := range map[string]fs.FileMode{filepath.Dir(path): 0o700, path: 0o600} {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v, want %v", file, info.Mode(), err, want)
		}
	}
	s.stop()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestOtherUsersAreRefused(t *testing.T) {
	path := socketPath(t)
	s := start(t, path, func(s *Server) { s.admits = func(uid uint32) bool { return uid != uint32(os.Geteuid()) } })
	s.logged(t, answering)
	if _, err := ask(t, path, "x"); err == nil || !strings.Contains(err.Error(), "may not ask this proxy: run the command as root") {
		t.Errorf("the error is %v", err)
	}
}

func TestSocketOfADeadProcessIsReplaced(t *testing.T) {
	path := socketPath(t)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	start(t, path).logged(t, answering)
	if got, err := ask(t, path, "x"); err != nil || got != "x" {
		t.Errorf("it answered %q, %v", got, err)
	}
}

func TestSocketOfALivingProcessIsKept(t *testing.T) {
	path := socketPath(t)
	first := start(t, path)
	first.logged(t, answering)
	second := start(t, path)
	second.logged(t, "another process answers on this socket")
	if got, err := ask(t, path, "x"); err != nil || got != "x" {
		t.Errorf("it answered %q, %v", got, err)
	}
	second.stop()
	if _, err := ask(t, path, "x"); err != nil {
		t.Errorf("the end of the second took the socket of the first away: %v", err)
	}
}

func TestSocketErrorsAreLogged(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, path string) error
		want string
	}{
		{"a file has the name", func(_ *testing.T, path string) error {
			return errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600))
		}, "is not a socket"},
		{"a file has the directory's name", func(_ *testing.T, path string) error {
			return os.WriteFile(filepath.Dir(path), nil, 0o600)
		}, "is not a directory"},
		{"others can write to the directory", func(_ *testing.T, path string) error {
			return errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.Chmod(filepath.Dir(path), 0o777))
		}, "others can write to the directory"},
		{"the group can write to the directory", func(_ *testing.T, path string) error {
			return errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.Chmod(filepath.Dir(path), 0o770))
		}, "chmod go-w"},
		{"everybody can write to the directory, as to /tmp", func(_ *testing.T, path string) error {
			return errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.Chmod(filepath.Dir(path), 0o777|fs.ModeSticky))
		}, "chmod go-w"},
		{"the directory is another user's", func(_ *testing.T, path string) error {
			return errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.Chown(filepath.Dir(path), 12345, 0))
		}, "belongs to user 12345, who could put another socket there: give it to user 0 (chown 0 "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := socketPath(t)
			if err := test.make(t, path); err != nil {
				t.Fatal(err)
			}
			start(t, path).logged(t, test.want)
		})
	}
	t.Run("the path is too long", func(t *testing.T) {
		start(t, "/tmp/"+strings.Repeat("x", 120)).logged(t, "longer than")
	})
	t.Run("nothing can be written there", func(t *testing.T) {
		start(t, "/proc/sluice/proxy.sock").logged(t, "/proc/sluice")
	})
}

func TestNoProxyIsAClearError(t *testing.T) {
	_, err := ask(t, socketPath(t), "x")
	if err == nil || !strings.Contains(err.Error(), "no proxy answers on") || !strings.Contains(err.Error(), "--control-socket") {
		t.Errorf("the error is %v", err)
	}
}

func TestConcurrentRequestsAreLimited(t *testing.T) {
	path := socketPath(t)
	release := make(chan struct{})
	var mu sync.Mutex
	now, most, total := 0, 0, 0
	s := start(t, path, func(s *Server) {
		s.Handle("/slow", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			now, total = now+1, total+1
			most = max(most, now)
			mu.Unlock()
			<-release
			mu.Lock()
			now--
			mu.Unlock()
			writeJSON(w, http.StatusOK, nil)
		}))
	})
	s.logged(t, answering)
	var all sync.WaitGroup
	for range 3 * maxRequests {
		all.Go(func() {
			c := NewClient(path)
			defer c.Close()
			if err := c.Ask(t.Context(), "/slow", nil, new(any)); err != nil {
				t.Error(err)
			}
		})
	}
	testkit.Until(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return now == maxRequests
	})
	close(release)
	all.Wait()
	if most != maxRequests || total != 3*maxRequests {
		t.Errorf("%d were answered, up to %d at a time", total, most)
	}
}

func TestPostedJSON(t *testing.T) {
	path := socketPath(t)
	s := start(t, path)
	s.logged(t, answering)
	c := NewClient(path)
	defer c.Close()
	var length int
	if err := c.Ask(t.Context(), "/post", strings.Repeat("x", 1<<19), &length); err != nil || length != 1<<19 {
		t.Errorf("it took %d bytes, %v", length, err)
	}
	for _, test := range []struct {
		name string
		page string
		in   any
		want string
	}{
		{"one that makes no sense", "/post", 7, "understand the question"},
		{"one that is wrong", "/post", "wrong", "text is wrong: use another"},
		{"one that is too large", "/post", strings.Repeat("x", 1<<20), "the question is too large: /post takes 1048576 bytes at the most"},
		{"one that is much too large", "/post", strings.Repeat("x", 8<<20), "the question is too large: /post takes 1048576 bytes at the most"},
		{"one of a later version", "/echo", map[string]string{"texts": "x"}, `unknown field "texts"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := c.Ask(t.Context(), test.page, test.in, &length); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q", err, test.want)
			}
		})
	}
	var answer echoed
	if _, err := c.send(t.Context(), http.MethodGet, "/echo?text=x", nil, &answer); err != nil || answer.Text != "x" {
		t.Errorf("a GET is answered with %v, %v", answer, err)
	}
	if status, err := c.send(t.Context(), http.MethodGet, "/post", nil, &length); status != http.StatusMethodNotAllowed {
		t.Errorf("a GET of what is too large for it is answered with %d, %v", status, err)
	}
}
