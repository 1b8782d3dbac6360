package kubernetes

import (
	"net"
	"net/http"
	"os"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// When a silent connection counts as dead. Packets may vanish without an error: a
// router that lost its state, an unplugged cable, a server whose machine died.
// client-go's defaults are 30 s and 15 s, during which a proxy gets no events
// although the server may be back.
const (
	// dialTimeout bounds the time to connect: the kernel retransmits SYNs with
	// growing pauses, while a new attempt starts with a short one.
	dialTimeout = 5 * time.Second
	// idleBefore is the idle time before the peer is probed.
	idleBefore = 5 * time.Second
	// answerWithin is how long it has to answer.
	answerWithin = 5 * time.Second
	// probes is how many keep-alive probes the kernel sends in that time.
	probes = 3
)

// readIdleVariable is client-go's environment variable for idleBefore, in
// seconds.
const readIdleVariable = "HTTP2_READ_IDLE_TIMEOUT_SECONDS"

// detectDeadConnections makes a client detect a dead connection by itself. TCP
// keep-alive detects lost packets; an HTTP/2 ping also detects a server that
// does not answer behind a proxy that does.
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

// setPingTimeouts sets the HTTP/2 ping timeouts, and keeps client-go's wrappers
// of the transport.
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
