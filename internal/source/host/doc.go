// Package host knows the machine that the proxy runs on: its name, its routes,
// and the addresses of its interfaces, which Source follows. Source reports
// every address except IPv6 link-local ones; plan decides which of them serve
// node ports.
package host
