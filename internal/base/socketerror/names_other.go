//go:build !windows

package socketerror

import "syscall"

// The errors.
const (
	AddressInUse        = syscall.EADDRINUSE
	AddressNotAvailable = syscall.EADDRNOTAVAIL
	NotPermitted        = syscall.EACCES
	ConnectionRefused   = syscall.ECONNREFUSED
	ConnectionReset     = syscall.ECONNRESET
	TimedOut            = syscall.ETIMEDOUT
	HostUnreachable     = syscall.EHOSTUNREACH
	NetworkUnreachable  = syscall.ENETUNREACH
	MessageTooLong      = syscall.EMSGSIZE
	NoBuffers           = syscall.ENOBUFS
)

// The commands that show which program listens on a port, of TCP or of any protocol.
const (
	ShowTCPListeners = "ss -ltnp"
	ShowListeners    = "ss -lntup"
)
