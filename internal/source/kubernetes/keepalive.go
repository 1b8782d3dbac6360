package kubernetes

import (
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// How soon a connection counts as broken over which nothing comes, not even the
// answer to a question whether the other end is there. Packets may vanish without
// an error: a router that lost its state, a cable that was pulled, a server whose
// machine died. The defaults of client-go are 30 s and 15 s, and while it waits a
// proxy hears nothing, though the server may long be back.
const (
	// dialTimeout bounds the time to connect: the kernel sends SYN again with growing
	// pauses, a new try begins with a short one.
	dialTimeout = 5 * time.Second
	// idleBefore is how long it must be silent before the other end is asked.
	idleBefore = 5 * time.Second
	// answerWithin is how long it has to answer.
	answerWithin = 5 * time.Second
	// probes is how many times the kernel asks in that time.
	probes = 3
)

// readIdleVariable is where an administrator can set for client-go what idleBefore is
// here, in seconds.
const readIdleVariable = "HTTP2_READ_IDLE_TIMEOUT_SECONDS"

// detectDeadConnections makes a client find out by itself when its connection is broken. The
// kernel notices that packets get lost; a ping of HTTP/2 notices it too if there is
// something in between that still answers for a server that does not.
func detectDeadConnections(config *rest.Config) {
	config.Dial = (&net.Dialer{
		Timeout: dialTimeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: idleBefore, Interval: answerWithin / probes, Count: probes,
		},
		Control: setUserTimeout,
	}).DialContext
	if os.Getenv(readIdleVariable) == "" {
		config.Wrap(setPingTimeouts)
	}
}

// setUserTimeout bounds how long what was sent may go unacknowledged, for
// keep-alive asks only where nothing was sent.
func setUserTimeout(_, _ string, conn syscall.RawConn) error {
	return conn.Control(func(fd uintptr) {
		// A kernel without it takes longer to notice.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int((idleBefore + answerWithin).Milliseconds()))
	})
}

// setPingTimeouts sets when connections of HTTP/2 are asked for an answer. Whatever client-go
// put around the transport stays.
func setPingTimeouts(outer http.RoundTripper) http.RoundTripper {
	for rt := outer; ; {
		switch t := rt.(type) {
		case *http.Transport:
			if t.HTTP2 == nil {
				t.HTTP2 = &http.HTTP2Config{}
			}
			t.HTTP2.SendPingTimeout, t.HTTP2.PingTimeout = idleBefore, answerWithin
			return outer
		case utilnet.RoundTripperWrapper:
			rt = t.WrappedRoundTripper()
		default:
			return outer
		}
	}
}
