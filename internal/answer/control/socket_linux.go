package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultSocket is the default path of the socket.
const DefaultSocket = "/run/sluice/kube-proxy.sock"

// suffix is what the path of a socket ends with.
const suffix = ".sock"

// mayAsk is who may use the socket.
const mayAsk = "root"

// OwnSocket returns the default path for a proxy of this user, who may not have the
// right to use DefaultSocket.
func OwnSocket() string {
	user := os.Geteuid()
	if user == 0 {
		return DefaultSocket
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "sluice", "kube-proxy.sock")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("sluice-%d", user), "kube-proxy.sock")
}

// IsOwn reports whether there is a socket of this user at a path.
func IsOwn(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSocket != 0 && int(info.Sys().(*syscall.Stat_t).Uid) == os.Geteuid()
}

// errLive is the error if another process answers on the socket.
var errLive = errors.New("another process answers on this socket")

// maxPathLen is the limit of a socket address, less the suffix of the temporary name.
const maxPathLen = 100

// socket is a listening unix socket and its file.
type socket struct {
	*net.UnixListener
	path string
	file fs.FileInfo
}

// listen creates the socket under a temporary name, and renames it once only its owner
// can use it. It replaces the socket of a dead process.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxPathLen {
		return nil, fmt.Errorf("the path is longer than %d characters", maxPathLen)
	}
	if err := makeDirectory(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := takeable(ctx, path); err != nil {
		return nil, err
	}
	early := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(early); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: early, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	s := &socket{UnixListener: listener, path: path}
	if err := s.publish(early); err != nil {
		return nil, errors.Join(err, listener.Close(), os.Remove(early))
	}
	return s, nil
}

func (s *socket) publish(early string) (err error) {
	if err := os.Chmod(early, 0o600); err != nil {
		return err
	}
	if s.file, err = os.Lstat(early); err != nil {
		return err
	}
	return os.Rename(early, s.path)
}

// Close removes the file, unless another process has replaced it.
func (s *socket) Close() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		_ = os.Remove(s.path) // a dead socket does no harm
	}
	return s.UnixListener.Close()
}

// makeDirectory makes a directory for the owner only. An existing one must not be
// writable by others, who could replace the socket by their own and receive the
// requests of root.
func makeDirectory(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o700)
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	self := os.Geteuid()
	switch {
	case owner != 0 && int(owner) != self:
		return fmt.Errorf("the directory %s belongs to user %d, who could put another socket there: give it to user %d (chown %d %s), or choose another directory",
			dir, owner, self, self, dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to the directory %s of user %d (mode %v): take that right away (chmod go-w %s), or choose another directory",
			dir, owner, info.Mode(), dir)
	}
	return nil
}

// takeable returns why the path cannot be used, because something else is there.
func takeable(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s is there and is not a socket: remove it", path)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := dial(ctx, path)
	switch {
	case err == nil:
		return errors.Join(errLive, conn.Close())
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return nil
	}
	return fmt.Errorf("find out whether a process answers on it: %w", err)
}

func dial(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// peer returns the user at the other end of a connection.
func peer(conn net.Conn) (uid uint32, err error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a unix socket")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	if ctl := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); ctl != nil {
		return 0, ctl
	}
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
