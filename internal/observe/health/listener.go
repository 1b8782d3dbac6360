package health

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/base/httpserver"
)

// answerTimeout is how long an answer may take: health checks have no reason to be slow.
const answerTimeout = 10 * time.Second

// listener answers HTTP on one address.
type listener struct {
	socket net.Listener
	server *http.Server
}

// listenOn opens a socket. With the family in the network name, package net
// sets IPV6_V6ONLY, so that each family has its own sockets.
func listenOn(at netip.AddrPort) (net.Listener, error) {
	network := "tcp4"
	if at.Addr().Is6() {
		network = "tcp6"
	}
	return net.Listen(network, at.String())
}

// newListener serves on a socket, and calls broke if that ends otherwise than
// by release or drain. all bounds its connections.
func newListener(socket net.Listener, answer http.Handler, all *httpserver.Connections, log logr.Logger, broke func(error)) *listener {
	l := &listener{socket: socket, server: httpserver.New(answer, answerTimeout, log)}
	bound := all.Bound(l.server, socket)
	go func() {
		err := l.server.Serve(bound)
		if !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
			broke(err)
		}
	}()
	return l
}

// release frees the address. Accepted connections go on until drain.
func (l *listener) release() {
	_ = l.socket.Close() // the address is released even if it fails
}

func (l *listener) drain(grace time.Duration) { httpserver.Drain(l.server, grace) }
