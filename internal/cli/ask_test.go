package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"

	"sluice/internal/answer/control"
	"sluice/internal/answer/explain"
	"sluice/internal/answer/question"
	"sluice/internal/answer/status"
	"sluice/internal/observe/verdict"
	"sluice/internal/testkit"
)

// serving serves a control socket with some pages until the test ends.
func serving(t *testing.T, add func(*control.Server)) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice-ask-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	server := control.New(control.Options{Path: socket, Logger: logr.Discard()})
	add(server)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; os.RemoveAll(dir) })
	testkit.Until(t, func() bool { _, err := os.Stat(socket); return err == nil })
	return socket
}

// answering serves a control socket with these answers until the test ends.
func answering(t *testing.T, reply *explain.Reply, report func() *status.Report) (socket string) {
	t.Helper()
	return serving(t, func(server *control.Server) {
		question.Explain.Serve(server, func(_ context.Context, q *explain.Question) (*explain.Reply, error) {
			if q.To == "wrong" {
				return nil, control.BadRequest(errors.New("wrong question\x1b[2J"))
			}
			return reply, nil
		})
		question.Status.Serve(server, func(context.Context, *question.None) (*status.Report, error) { return report(), nil })
	})
}

func TestExitCodes(t *testing.T) {
	well := func() *status.Report {
		return &status.Report{Proxy: verdict.Proxy{Word: verdict.Serving}, Healthy: true}
	}
	tests := []struct {
		name   string
		reply  *explain.Reply
		report func() *status.Report
		in     []string
		want   int
		out    string // on standard output or standard error
	}{
		{"a packet that flows", &explain.Reply{Flows: true}, well, []string{"explain", "a/b"}, 0, ""},
		{"a packet that does not", &explain.Reply{}, well, []string{"explain", "a/b"}, 1, ""},
		{"as JSON", &explain.Reply{Mode: "m"}, well, []string{"explain", "--json", "a/b"}, 1, `"mode": "m"`},
		{"a question that makes no sense", nil, well, []string{"explain", "wrong"}, 2, `wrong question\x1b[2J`},
		{"no question", nil, well, []string{"explain"}, 2, "name one thing to explain, such as default/web"},
		{"unknown flag", nil, well, []string{"explain", "--frm=pod", "a/b"}, 2, "unknown flag"},
		{"all is well", nil, well, []string{"status"}, 0, "serving"},
		{"not serving", nil, func() *status.Report {
			return &status.Report{Proxy: verdict.Proxy{Word: verdict.NotServing, Why: "no directory"}}
		}, []string{"status"}, 1, "NOT SERVING\nNot serving: No directory"},
		{"serving the past", nil, func() *status.Report {
			return &status.Report{Proxy: verdict.Proxy{Word: verdict.ServingThePast}, Healthy: true}
		}, []string{"status"}, 1, "SERVING THE PAST"},
		{"a frontend failed", nil, func() *status.Report {
			return &status.Report{Proxy: verdict.Proxy{Word: verdict.Serving}, Healthy: true, Frontends: status.Frontends{Failed: 1}}
		}, []string{"status"}, 1, "1 failed"},
		{"status as JSON", nil, well, []string{"status", "--json"}, 0, `"healthy": true`},
		{"status of what", nil, well, []string{"status", "x"}, 2, "unknown command"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			socket := answering(t, test.reply, test.report)
			var stdout, stderr bytes.Buffer
			if code := Main(append(test.in, "--control-socket", socket), &stdout, &stderr); code != test.want {
				t.Errorf("exit code is %d, want %d: %s", code, test.want, stderr.String())
			}
			if text := stdout.String() + stderr.String(); !strings.Contains(text, test.out) {
				t.Errorf("%q is not in %q", test.out, text)
			}
			if (stderr.Len() > 0) != (test.want == 2) {
				t.Errorf("standard error has %q", stderr.String())
			}
		})
	}
}

func TestErrorWithoutAProxyHasARemedy(t *testing.T) {
	for _, command := range [][]string{{"explain", "a/b"}, {"status"}} {
		var stdout, stderr bytes.Buffer
		code := Main(append(command, "--control-socket", filepath.Join(t.TempDir(), "none")), &stdout, &stderr)
		if text := stderr.String(); code != 2 || stdout.Len() > 0 || !strings.Contains(text, "no proxy answers on") || !strings.Contains(text, "--control-socket") {
			t.Errorf("%v: exit code %d, %q", command, code, text)
		}
	}
}

func TestStatusIsFollowedUntilInterrupted(t *testing.T) {
	var mu sync.Mutex
	asked := uint64(0)
	socket := answering(t, nil, func() *status.Report {
		mu.Lock()
		defer mu.Unlock()
		asked++
		return &status.Report{Healthy: true, DesiredRevision: asked}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cmd := newCommand(&options{})
	out := &lockedBuffer{}
	cmd.SetOut(out)
	cmd.SetArgs([]string{"status", "--watch", "--control-socket", socket})
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	testkit.Until(t, func() bool {
		return strings.Contains(out.String(), "revision   1,") && strings.Contains(out.String(), "revision   2,")
	})
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("what is no terminal gets terminal escapes")
	}
}

// lockedBuffer is a buffer that one writes to while another reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
