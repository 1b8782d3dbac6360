package kubectl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	protocol "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	transport "k8s.io/client-go/transport/websocket"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	streamspdy "k8s.io/streaming/pkg/httpstream/spdy"
	utilexec "k8s.io/utils/exec"
)

// exec runs a command of kube-proxy in a pod and returns its exit code. The error says
// that it could not be run.
func (c *cluster) exec(ctx context.Context, p pod, args []string, stdin io.Reader, stdout, stderr io.Writer) (code int, err error) {
	to := c.core.RESTClient().Post().Resource("pods").Namespace(c.namespace).Name(p.name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: p.container, Command: append([]string{p.command}, args...),
			Stdin: stdin != nil, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec).URL()
	old, err := overSPDY(c.config, to)
	if err != nil {
		return 0, err
	}
	// Proxies between here and the API server may know only one of them.
	executor, err := remotecommand.NewFallbackExecutor(&overWebSocket{c.config, to.String()}, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return 0, err
	}
	ctx = klog.NewContext(ctx, logr.Discard()) // what is worth telling is in the error
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr})
	var exited utilexec.ExitError
	if errors.As(err, &exited) && exited.Exited() {
		return exited.ExitStatus(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("run kube-proxy in pod %s: %w", p.name, err)
	}
	return 0, nil
}

// errLongStatus is about a node that says without end how a command ended, which the library
// would keep.
var errLongStatus = fmt.Errorf("its status has more than %d bytes", maxError)

// overWebSocket runs a command over a WebSocket. The executor of the library reads statuses
// without bounds, and has no place for any.
type overWebSocket struct {
	config *rest.Config
	url    string
}

const (
	// pingPeriod is how often a node is asked whether it is there, and silence how long it may
	// say nothing.
	pingPeriod = 5 * time.Second
	silence    = time.Minute
	// chunk is how much input is sent at a time.
	chunk = 32 << 10
)

func (w *overWebSocket) Stream(o remotecommand.StreamOptions) error {
	return w.StreamWithContext(context.Background(), o)
}

func (w *overWebSocket) StreamWithContext(ctx context.Context, o remotecommand.StreamOptions) error {
	tripper, holder, err := transport.RoundTripperFor(w.config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return err
	}
	conn, err := transport.Negotiate(tripper, holder, request, protocol.StreamProtocolV5Name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = conn.Close() }) // whatever hangs ends
	go keepAlive(ctx, conn)
	if o.Stdin != nil {
		go sendInput(conn, o.Stdin)
	}
	status, err := receive(conn, o.Stdout, o.Stderr)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	return decodeStatus(status)
}

// keepAlive has the other end answer from time to time.
func keepAlive(ctx context.Context, conn *websocket.Conn) {
	tick := time.NewTicker(pingPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(pingPeriod)) // who reads notices
		}
	}
}

// sendInput sends all of it, and that it has ended. If that fails, the command ends without it.
func sendInput(conn *websocket.Conn, input io.Reader) {
	buffer := make([]byte, 1+chunk)
	buffer[0] = protocol.StreamStdIn
	for {
		n, err := input.Read(buffer[1:])
		if n > 0 && conn.WriteMessage(websocket.BinaryMessage, buffer[:1+n]) != nil {
			return
		}
		if err != nil {
			_ = conn.WriteMessage(websocket.BinaryMessage, []byte{protocol.StreamClose, protocol.StreamStdIn})
			return
		}
	}
}

// receive copies what the command writes until it has ended, and returns how.
func receive(conn *websocket.Conn, stdout, stderr io.Writer) (status []byte, err error) {
	heard := func(string) error { return conn.SetReadDeadline(time.Now().Add(silence)) }
	conn.SetPongHandler(heard)
	var ended bytes.Buffer
	for {
		if err := heard(""); err != nil {
			return nil, err
		}
		_, message, err := conn.NextReader()
		if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			return ended.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		channel := make([]byte, 1)
		if _, err := io.ReadFull(message, channel); err == io.EOF {
			continue // an empty message
		} else if err != nil {
			return nil, err
		}
		to := io.Discard
		switch channel[0] {
		case protocol.StreamStdOut:
			to = stdout
		case protocol.StreamStdErr:
			to = stderr
		case protocol.StreamErr:
			to, message = &ended, io.LimitReader(message, int64(maxError+1-ended.Len()))
		}
		if _, err := io.Copy(to, message); err != nil {
			return nil, err
		}
		if ended.Len() > maxError {
			return nil, errLongStatus
		}
	}
}

// decodeStatus returns the error that a status means; nil for success, and if there is none.
func decodeStatus(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err != nil {
		return fmt.Errorf("its status cannot be understood: %w", err)
	}
	if status.Status == metav1.StatusSuccess {
		return nil
	}
	if status.Reason == protocol.NonZeroExitCodeReason && status.Details != nil {
		for _, cause := range status.Details.Causes {
			if code, err := strconv.ParseUint(cause.Message, 10, 8); cause.Type == protocol.ExitCodeCauseType && err == nil {
				return utilexec.CodeExitError{Err: fmt.Errorf("it ended with %d", code), Code: int(code)}
			}
		}
	}
	return fmt.Errorf("its status is %q: %s", status.Status, status.Message)
}

// overSPDY returns what runs a command over SPDY, as older API servers want it.
func overSPDY(config *rest.Config, to *url.URL) (remotecommand.Executor, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	upgrade, err := streamspdy.NewRoundTripperWithConfig(streamspdy.RoundTripperConfig{TLS: tls, Proxier: config.Proxy, PingPeriod: pingPeriod})
	if err != nil {
		return nil, err
	}
	tripper, err := rest.HTTPWrappersForConfig(config, upgrade)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewSPDYExecutorForTransports(tripper, spdy.NewUpgraderForStreaming(boundedUpgrade{upgrade}), http.MethodPost, to)
}

// boundedUpgrade bounds the status on connections.
type boundedUpgrade struct{ httpstream.UpgradeRoundTripper }

func (u boundedUpgrade) NewConnection(response *http.Response) (httpstream.Connection, error) {
	conn, err := u.UpgradeRoundTripper.NewConnection(response)
	if err != nil {
		return nil, err
	}
	return boundedConnection{conn}, nil
}

type boundedConnection struct{ httpstream.Connection }

func (c boundedConnection) CreateStream(headers http.Header) (httpstream.Stream, error) {
	stream, err := c.Connection.CreateStream(headers)
	if err != nil || headers.Get(corev1.StreamType) != corev1.StreamTypeError {
		return stream, err
	}
	return &statusStream{Stream: stream, conn: c, left: maxError}, nil
}

// statusStream closes its connection when too much came: else the other streams are waited for.
type statusStream struct {
	httpstream.Stream
	conn io.Closer
	left int
}

func (s *statusStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if s.left -= n; s.left < 0 {
		return 0, errors.Join(errLongStatus, s.conn.Close())
	}
	return n, err
}
