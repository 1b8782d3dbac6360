//go:build !linux

package httpserver

import "net"

func deferAccept(net.Listener) {}

func hasRequest(net.Conn) bool { return false }
