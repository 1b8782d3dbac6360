package relay

import (
	"errors"
	"syscall"
)

// Remedy returns what an administrator can do about a failure to listen on a node port.
func Remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "end the program that uses the port (ss -lntup shows it), or give the Service another nodePort"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "give the address to an interface, or leave it out of --nodeport-addresses"
	case errors.Is(err, syscall.EACCES):
		return "give the Service a nodePort of 1024 or more, or the proxy CAP_NET_BIND_SERVICE"
	}
	return "none needed if it passes: it is tried again"
}
