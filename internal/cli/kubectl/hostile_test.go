package kubectl

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	protocol "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"sluice/internal/answer/explain"
	"sluice/internal/observe/verdict"
)

// The channels of a command that runs in a pod.
const (
	toStdout = 1
	toStderr = 2
	toStatus = 3
)

const (
	succeeded = `{"metadata":{},"status":"Success"}`
	exited    = `{"status":"Failure","reason":"NonZeroExitCode","message":"ended","details":{"causes":[{"reason":"ExitCode","message":"%d"}]}}`
)

// evilNode is an API server with one pod of the proxy, and a node that runs commands in it as it
// likes. Its name is hostile, too.
type evilNode struct {
	t      *testing.T
	server *httptest.Server
	old    bool         // it knows SPDY only
	sent   atomic.Int64 // bytes
	asked  chan []string
	gone   chan struct{}
}

const evilName = "evil\x1b]0;owned\x07"

// newEvilNode starts one. run is called with a function that writes to a channel, and reports
// whether the plugin is still there.
func newEvilNode(t *testing.T, run func(write func(channel byte, data string) bool)) *evilNode {
	n := &evilNode{t: t, asked: make(chan []string, 16), gone: make(chan struct{}, 16)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/kube-system/pods", func(w http.ResponseWriter, r *http.Request) {
		items := ""
		if strings.HasSuffix(r.URL.Query().Get("labelSelector"), "=sluice") {
			items = fmt.Sprintf(`{"metadata": {"name": "sluice-x"}, "spec": {"nodeName": "%s", "containers": [{"name": "c"}]}, "status": {"phase": "Running"}}`,
				strings.NewReplacer("\x1b", `\u001b`, "\x07", `\u0007`).Replace(evilName))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind": "PodList", "apiVersion": "v1", "items": [%s]}`, items)
	})
	mux.HandleFunc("/api/v1/namespaces/kube-system/pods/sluice-x/exec", func(w http.ResponseWriter, r *http.Request) {
		defer func() { n.gone <- struct{}{} }()
		select {
		case n.asked <- r.URL.Query()["command"]:
		default: // the test does not want to know
		}
		if n.old {
			n.runOverSPDY(w, r, run)
			return
		}
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		conn, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(buffered, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n",
			base64.StdEncoding.EncodeToString(sum[:]))
		run(func(channel byte, data string) bool {
			return n.frame(buffered.Writer, 0x82, string([]byte{channel})+data)
		})
		n.frame(buffered.Writer, 0x88, "\x03\xe8") // an orderly end
	})
	n.server = httptest.NewServer(mux)
	t.Cleanup(n.server.Close)
	return n
}

// runOverSPDY does it with the older protocol, if that is asked for.
func (n *evilNode) runOverSPDY(w http.ResponseWriter, r *http.Request, run func(write func(channel byte, data string) bool)) {
	if r.Method != http.MethodPost {
		http.Error(w, "no WebSockets here", http.StatusBadRequest)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{protocol.StreamProtocolV4Name}); err != nil {
		n.t.Error(err)
		return
	}
	const channels = 3
	opened := make(chan httpstream.Stream, channels)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		opened <- s
		return nil
	})
	if conn == nil {
		n.t.Error("the connection is not upgraded")
		return
	}
	defer conn.Close()
	streams := map[string]httpstream.Stream{}
	for range channels {
		s := <-opened
		streams[s.Headers().Get(corev1.StreamType)] = s
	}
	run(func(channel byte, data string) bool {
		n.sent.Add(int64(len(data)))
		name := map[byte]string{toStdout: corev1.StreamTypeStdout, toStderr: corev1.StreamTypeStderr, toStatus: corev1.StreamTypeError}[channel]
		_, err := streams[name].Write([]byte(data))
		return err == nil
	})
}

// frame writes a frame of a WebSocket.
func (n *evilNode) frame(w *bufio.Writer, kind byte, payload string) bool {
	header := binary.BigEndian.AppendUint64([]byte{kind, 127}, uint64(len(payload)))
	if len(payload) < 126 {
		header = []byte{kind, byte(len(payload))}
	}
	n.sent.Add(int64(len(payload)))
	_, err := w.Write(append(header, payload...))
	return err == nil && w.Flush() == nil
}

// run runs the plugin. What it prints must be harmless, whatever the node sent.
func (n *evilNode) run(args ...string) (code int, text string) {
	n.t.Helper()
	kubeconfig := filepath.Join(n.t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
		"clusters": [{"name": "x", "cluster": {"server": %q}}], "users": [{"name": "x", "user": {}}]}`, n.server.URL)
	if err := os.WriteFile(kubeconfig, []byte(config), 0o600); err != nil {
		n.t.Fatal(err)
	}
	var out, errs strings.Builder
	code = run(n.t.Context(), append([]string{"--kubeconfig", kubeconfig}, args...), strings.NewReader(""), &out, &errs)
	text = out.String() + errs.String()
	for i, r := range text {
		if r != '\n' && !unicode.IsPrint(r) || r == utf8.RuneError {
			n.t.Errorf("%q prints %q in %q", args, r, text[max(0, i-40):min(len(text), i+40)])
			break
		}
	}
	return code, text
}

// questions are all that are asked of nodes. In words, they are also asked of one node.
func questions() (out [][]string) {
	for _, q := range [][]string{{"status"}, {"explain", "default/web"}, {"services"}, {"services", "--failing"}, {"events"}, {"diff", "-f", "-"}} {
		out = append(out, q, append(q, "--node", evilName), append(q, "-o", "json"), append(q, "-o", "yaml"))
	}
	return append(out, []string{"events", "-f"}, []string{"events", "-f", "-o", "json"}, []string{"events", "-f", "-o", "yaml"})
}

// What is no answer ends with 2, and whatever a node sends is only text.
func TestNodesAreNotTrusted(t *testing.T) {
	const escapes = "\x1b[2J\x1b]52;c;ZXZpbA==\x07\x1b[31mhealthy\x1b[0m \u202e\u009b2J\xff\x7f\r\n"
	for _, tt := range []struct {
		name           string
		stdout, stderr string
		status         string
	}{
		{"terminal escapes", escapes, "", succeeded},
		{"terminal escapes as a complaint", "", escapes, succeeded},
		{"terminal escapes as an error", escapes, escapes, fmt.Sprintf(exited, 2)},
		{"terminal escapes as a status", escapes, escapes, `{"status":"Failure","message":"\u001b[2J\u202e"}`},
		{"a status that is none", "{}", "", escapes},
		{"nothing", "", "", succeeded},
		{"not even a status", "", "", ""},
		{"a list", "[]", "", succeeded},
		{"null", "null", "", succeeded},
		{"an empty object", "{}", "", succeeded},
		{"wrong types", `{"version": 7, "answers": 7, "services": 7, "events": 7, "added": "7"}`, "", succeeded},
		{"half an answer", `{"version": "v1", "answers": [], "services": [], "events": [], "added": 1`, "", succeeded},
		{"killed in the midst of it", `{"version": "v1", "answers": [], "services": [], "events": [], "added": 1}`, "", fmt.Sprintf(exited, 137)},
		{"very deep", `{"version": ` + strings.Repeat("[", 1<<20), "", succeeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newEvilNode(t, func(write func(byte, string) bool) {
				write(toStdout, tt.stdout)
				write(toStderr, tt.stderr)
				write(toStatus, tt.status)
			})
			for _, q := range questions() {
				if code, text := n.run(q...); code != noAnswer || text == "" {
					t.Errorf("%q ends with %d:\n%.2000s", q, code, text)
				}
			}
		})
	}
}

// An answer may have anything in its texts.
func TestTextsOfAnswersAreEscaped(t *testing.T) {
	const hidden = `\u001b[2J\u0007\u202e\u009b` + "\u202e\u009b\x7f\xff"
	for command, answer := range map[string]string{
		"status":   `{"version": "v%", "node": "n%", "mode": "%", "kernel": "%", "verdict": "serving%", "sources": ["%"]}`,
		"explain":  `{"answers": [{"verdict": "works%", "summary": "%", "packet": {"from": "%"}, "steps": [{"subject": "%", "text": "%"}], "problems": [{"text": "%", "remedy": "%"}]}]}`,
		"services": `{"services": [{"namespace": "d%", "name": "n%", "verdict": "refused%", "why": "%"}]}`,
		"events":   `{"id": 1, "service": "a/b%", "kind": "refused%", "detail": "%", "events": [{"service": "a/b%", "kind": "refused%", "detail": "%"}]}`,
		"diff":     `{"added": 1, "frontends": [{"action": "add%", "service": "%", "kind": "%"}]}`,
	} {
		n := newEvilNode(t, func(write func(byte, string) bool) {
			write(toStdout, strings.ReplaceAll(answer, "%", hidden)+"\n")
			write(toStatus, succeeded)
		})
		for _, q := range questions() {
			if q[0] != command {
				continue
			}
			code, text := n.run(q...)
			follows := slices.Contains(q, "-f") && command == "events" // until the end, which is none that it should have
			if escaped := strings.Contains(text, "1b[2J"); (code == noAnswer) != follows || !escaped {
				t.Errorf("%q ends with %d:\n%.2000s", q, code, text)
			}
		}
	}
}

// Proxies of other versions understand these commands, too.
func TestNodesAreAskedByCommands(t *testing.T) {
	n := newEvilNode(t, func(write func(byte, string) bool) { write(toStatus, succeeded) })
	for _, tt := range []struct{ in, want string }{
		{"status", "status --json"},
		{"explain default/web", "explain --json -- default/web"},
		{"explain --from outside --interface eth0 a:80", "explain --json --from=outside --interface=eth0 -- a:80"},
		{"services", "services --json"},
		{"services --in a --top --failing", "services --json --namespace=a --top=true"},
		{"services --failing --node " + evilName, "services --json --failing"},
		{"events", "events --json"},
		{"events --in a --last 3 a/b", "events --json --namespace=a --last=3 -- a/b"},
		{"events -f a/b", "events --follow --json -- a/b"},
		{"diff -f -", "diff --json --add --manifests=-"},
	} {
		n.run(strings.Fields(tt.in)...)
		if got := strings.Join(<-n.asked, " "); got != "kube-proxy "+tt.want {
			t.Errorf("%s: nodes are asked %q, want %q", tt.in, got, tt.want)
		}
	}
	for _, wrong := range []string{"events web", "events --last=-1"} {
		if code, text := n.run(strings.Fields(wrong)...); code != noAnswer || len(n.asked) > 0 {
			t.Errorf("%s: ends with %d, and asks a node: %s", wrong, code, text)
		}
	}
}

// The answer of one node is written as its proxy would, and ends as that did.
func TestAnswerOfOneNodeIsWrittenInFull(t *testing.T) {
	reply := &explain.Reply{Answers: []explain.Answer{{Verdict: verdict.Refused, Fate: "dropped", Summary: "none here", Steps: []explain.Step{{Subject: "client", Text: "a pod"}}}}}
	answer, err := json.Marshal(reply)
	if err != nil {
		t.Fatal(err)
	}
	n := newEvilNode(t, func(write func(byte, string) bool) {
		write(toStdout, string(answer[:20]))
		write(toStdout, string(answer[20:]))
		write(toStatus, fmt.Sprintf(exited, 1))
	})
	var want strings.Builder
	if err := explain.Write(&want, reply); err != nil {
		t.Fatal(err)
	}
	if code, text := n.run("explain", "default/web", "--node", evilName); code != bad || text != want.String() {
		t.Errorf("it ends with %d:\n%s\nwant\n%s", code, text, &want)
	}
}

// A node that sends without end is not listened to, on any channel.
func TestNodesCannotSendWithoutEnd(t *testing.T) {
	for _, old := range []bool{false, true} {
		for channel, most := range map[byte]int64{toStdout: maxAnswer, toStderr: maxError, toStatus: maxError} {
			t.Run(fmt.Sprintf("channel %d, SPDY %t", channel, old), func(t *testing.T) {
				some := strings.Repeat("A", 1<<20)
				n := newEvilNode(t, func(write func(byte, string) bool) {
					for write(channel, some) {
					}
				})
				n.old = old
				for _, q := range [][]string{{"status"}, {"services", "--node", evilName}, {"events", "-f"}} {
					n.sent.Store(0)
					code, text := n.run(q...)
					<-n.gone
					if old { // it was tried second
						<-n.gone
					}
					// What the network holds is not known.
					if sent := n.sent.Load(); code != noAnswer || sent > most+32<<20 || len(text) > 2*maxError {
						t.Errorf("%q ends with %d after %d bytes:\n%.2000s", q, code, sent, text)
					}
				}
			})
		}
	}
}

// The older protocol gets the same answers.
func TestAnswersOverSPDY(t *testing.T) {
	n := newEvilNode(t, func(write func(byte, string) bool) {
		write(toStdout, `{"services": []}`)
		write(toStatus, fmt.Sprintf(exited, bad))
	})
	n.old = true
	if code, text := n.run("services"); code != bad {
		t.Errorf("it ends with %d:\n%s", code, text)
	}
}
