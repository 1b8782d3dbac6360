// Package host knows the machine that the proxy runs on: its name, and the
// addresses of its interfaces, which it follows as they come and go. It reports
// every address but the link-local ones of IPv6; which of them serve node ports
// is for plan to decide.
//
// Tune makes the kernel's settings as the administrator wants them. It writes
// only what differs, so that a proxy without the rights to change them starts
// without complaint after somebody else did.
package host
