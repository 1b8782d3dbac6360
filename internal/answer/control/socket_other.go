//go:build !linux && !windows

package control

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// DefaultSocket is empty: who is at the other end of a socket can be told on Linux only.
const DefaultSocket = ""

const (
	suffix = ".sock"
	mayAsk = "root"
)

// OwnSocket returns DefaultSocket.
func OwnSocket() string { return DefaultSocket }

// IsOwn returns false.
func IsOwn(string) bool { return false }

var errLive = errors.New("another process answers on this socket")

func listen(context.Context, string) (net.Listener, error) {
	return nil, fmt.Errorf("a control socket needs Linux or Windows: %w", errors.ErrUnsupported)
}

func dial(context.Context, string) (net.Conn, error) { return nil, errors.ErrUnsupported }

func peer(net.Conn) (uid uint32, err error) { return 0, errors.ErrUnsupported }
