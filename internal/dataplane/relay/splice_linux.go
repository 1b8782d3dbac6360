package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// transfer copies until EOF, by splice(2): the data stays in the kernel. In contrast to
// io.Copy, a connection has a pipe only while there is data on its way, so that
// thousands of idle ones need two file descriptors each and no buffer.
func transfer(to, from *net.TCPConn) error {
	src, err := from.SyscallConn()
	if err != nil {
		return err
	}
	dst, err := to.SyscallConn()
	if err != nil {
		return err
	}
	for {
		p, n, err := fill(src)
		switch {
		case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM):
			// Not supported here, or not allowed: io.Copy would try the same.
			return copyAll(to, from)
		case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE): // no pipe to be had
			if err := copySome(to, from); err != nil {
				return ignoreEOF(err)
			}
			continue
		case err != nil:
			return err
		case n == 0:
			p.release()
			return nil
		}
		if err := p.drain(dst, n); err != nil {
			p.close()
			return err
		}
		p.release()
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// pipe carries data from one socket to another.
type pipe struct{ r, w int }

// pipeSize is how much data a pipe takes, if the kernel allows.
const pipeSize = 256 << 10

// pipes are those that are not in use.
var pipes = make(chan *pipe, 128)

func takePipe() (*pipe, error) {
	select {
	case p := <-pipes:
		return p, nil
	default:
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize) // a smaller one works as well
	return &pipe{fds[0], fds[1]}, nil
}

func (p *pipe) release() {
	select {
	case pipes <- p:
	default:
		p.close()
	}
}

func (p *pipe) close() {
	_ = unix.Close(p.r) // nothing can be done
	_ = unix.Close(p.w)
}

// fill waits for data of a socket and moves it into a pipe, of which it returns the
// length; 0 for EOF.
func fill(src syscall.RawConn) (p *pipe, n int, err error) {
	rerr := src.Read(func(fd uintptr) bool {
		if p, err = takePipe(); err != nil {
			return true
		}
		if n, err = splice(int(fd), p.w, pipeSize); err == nil {
			return true
		}
		p.release()
		p = nil
		return !errors.Is(err, unix.EAGAIN)
	})
	if rerr != nil {
		return nil, 0, rerr
	}
	return p, n, err
}

// drain moves n bytes out of the pipe into a socket.
func (p *pipe) drain(dst syscall.RawConn, n int) error {
	for n > 0 {
		var moved int
		var err error
		werr := dst.Write(func(fd uintptr) bool {
			moved, err = splice(p.r, int(fd), n)
			return !errors.Is(err, unix.EAGAIN)
		})
		if err := errors.Join(werr, err); err != nil {
			return err
		}
		n -= moved
	}
	return nil
}

func splice(from, to, n int) (int, error) {
	for {
		moved, err := unix.Splice(from, nil, to, nil, n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err == unix.EINTR {
			continue
		}
		return int(moved), os.NewSyscallError("splice", err)
	}
}

// copyAll copies until EOF, through memory.
func copyAll(to, from *net.TCPConn) error {
	for {
		if err := copySome(to, from); err != nil {
			return ignoreEOF(err)
		}
	}
}

// copySome copies what there is, through memory.
func copySome(to, from *net.TCPConn) error {
	socket, err := from.SyscallConn()
	if err != nil {
		return err
	}
	return withPacket(socket, func(buffer []byte) error {
		n, err := from.Read(buffer)
		if err != nil {
			return err
		}
		_, err = to.Write(buffer[:n])
		return err
	})
}
