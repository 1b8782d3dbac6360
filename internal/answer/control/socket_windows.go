package control

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"

	"github.com/Microsoft/go-winio"
)

// DefaultSocket is the default path of the socket: on Windows a named pipe, which containers of the node
// that are HostProcess ones see as well.
const DefaultSocket = `\\.\pipe\sluice\kube-proxy`

// suffix is what the path of a pipe ends with.
const suffix = ""

// mayAsk is who may use the pipe.
const mayAsk = "an administrator"

// OwnSocket returns DefaultSocket.
func OwnSocket() string { return DefaultSocket }

// IsOwn returns false: a pipe of another kind of user has no other name.
func IsOwn(string) bool { return false }

// errLive is the error if another process answers on the pipe.
var errLive = errors.New("another process answers on this socket")

// administrators are, in the words of Windows, the system, administrators and who made the pipe: all
// others are denied to connect, and nobody does so from another machine.
const administrators = "D:P(A;;GA;;;SY)(A;;GA;;;BA)(A;;GA;;;S-1-3-4)"

func listen(_ context.Context, path string) (net.Listener, error) {
	l, err := winio.ListenPipe(path, &winio.PipeConfig{SecurityDescriptor: administrators})
	if errors.Is(err, fs.ErrPermission) {
		return nil, errors.Join(errLive, err)
	}
	return l, err
}

func dial(ctx context.Context, path string) (net.Conn, error) {
	return winio.DialPipeContext(ctx, path)
}

// peer returns the user of this process: Windows itself refuses who may not connect.
func peer(net.Conn) (uid uint32, err error) { return uint32(os.Geteuid()), nil }
