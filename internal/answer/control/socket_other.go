//go:build !linux

package control

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// DefaultSocket is empty: who is at the other end of a socket can be told on Linux only.
const DefaultSocket = ""

// OwnSocket returns DefaultSocket.
func OwnSocket() string { return DefaultSocket }

// IsOwn returns false.
func IsOwn(string) bool { return false }

var errLive = errors.New("another process answers on this socket")

type socket struct{ *net.UnixListener }

func listen(context.Context, string) (*socket, error) {
	return nil, fmt.Errorf("a control socket needs Linux: %w", errors.ErrUnsupported)
}

func peer(*net.UnixConn) (uid uint32, err error) { return 0, errors.ErrUnsupported }
