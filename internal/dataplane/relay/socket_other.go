//go:build !linux

package relay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"

	"sluice/internal/model"
)

// listenConfig fails where an interface is chosen.
func (s *server) listenConfig(bool) *net.ListenConfig {
	if s.Device == "" {
		return &net.ListenConfig{}
	}
	return &net.ListenConfig{Control: func(string, string, syscall.RawConn) error {
		return fmt.Errorf("bind to device %s: %w", s.Device, errors.ErrUnsupported)
	}}
}

// dialer returns one that leaves sockets as they are.
func (origin) dialer(model.Protocol, netip.AddrPort) net.Dialer { return net.Dialer{} }

func hopsOf(*net.TCPConn) int { return 0 }
func hopsIn([]byte) int       { return 0 }

func over(*net.TCPConn) bool { return false }

// mute and unmute do nothing: a client is answered, and then reset for want of an
// endpoint.
func mute(int) error   { return nil }
func unmute(int) error { return nil }

// spoofedSource is never needed: endpoints see an address of this machine.
type spoofedSource struct{}

func (*spoofedSource) renew() error { return nil }
func (*spoofedSource) forget()      {}

// withPacket borrows a buffer for as long as it waits for a packet.
func withPacket(_ syscall.RawConn, read func(buffer []byte) error) error {
	buffer := buffers.Get().(*[maxPacket]byte)
	defer buffers.Put(buffer)
	return read(buffer[:])
}

// transfer copies until EOF.
func transfer(to, from *net.TCPConn) error {
	_, err := io.Copy(to, from)
	return err
}
