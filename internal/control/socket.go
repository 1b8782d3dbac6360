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

// errLive says that another process answers on the socket.
var errLive = errors.New("another process answers on this socket")

// longestPath is what fits into a socket address of the kernel, with our suffix
// of a name that is not final yet.
const longestPath = 100

// socket is a listening unix socket and the file that leads to it.
type socket struct {
	*net.UnixListener
	path string
	file fs.FileInfo
}

// listen makes the socket. It gets its final name when only its owner can use
// it; a socket whose process is gone gives its name up.
func listen(ctx context.Context, path string) (*socket, error) {
	if len(path) > longestPath {
		return nil, fmt.Errorf("the path is longer than %d characters", longestPath)
	}
	if err := makeFolder(filepath.Dir(path)); err != nil {
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

// Close removes the file, unless it is another's by now.
func (s *socket) Close() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.file) {
		_ = os.Remove(s.path) // a file of a dead socket harms nobody
	}
	return s.UnixListener.Close()
}

// makeFolder makes a folder for the owner only. One that is there stays as it
// is, but must not let others put a socket of theirs in the place of ours: whoever
// asks the proxy, as root, would ask them.
func makeFolder(folder string) error {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(folder, 0o700)
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Stat(folder)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", folder)
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	self := os.Geteuid()
	switch {
	case owner != 0 && int(owner) != self:
		return fmt.Errorf("the folder %s belongs to user %d, who could put another socket there: give it to user %d (chown %d %s), or choose another folder",
			folder, owner, self, self, folder)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to the folder %s of user %d (mode %v): take that right away (chmod go-w %s), or choose another folder",
			folder, owner, info.Mode(), folder)
	}
	return nil
}

// takeable tells why the name cannot be taken: something else has it.
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
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(errLive, conn.Close())
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return nil
	}
	return fmt.Errorf("find out whether somebody answers on it: %w", err)
}

// peer is the user at the other end of a connection.
func peer(conn *net.UnixConn) (uid uint32, err error) {
	raw, err := conn.SyscallConn()
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
