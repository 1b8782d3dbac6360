package socketerror

import "golang.org/x/sys/windows"

// The errors.
const (
	AddressInUse        = windows.WSAEADDRINUSE
	AddressNotAvailable = windows.WSAEADDRNOTAVAIL
	NotPermitted        = windows.WSAEACCES
	ConnectionRefused   = windows.WSAECONNREFUSED
	ConnectionReset     = windows.WSAECONNRESET
	TimedOut            = windows.WSAETIMEDOUT
	HostUnreachable     = windows.WSAEHOSTUNREACH
	NetworkUnreachable  = windows.WSAENETUNREACH
	MessageTooLong      = windows.WSAEMSGSIZE
	NoBuffers           = windows.WSAENOBUFS
)

// The commands that show which program listens on a port, of TCP or of any protocol.
const (
	ShowTCPListeners = "netstat -ano"
	ShowListeners    = "netstat -ano"
)
