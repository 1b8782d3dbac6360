// Package host knows the machine that the proxy runs on: its name, and the
// addresses of its interfaces, which it follows as they come and go.
//
// It reports every address but the link-local ones of IPv6. Which of them
// serve node ports is for plan to decide.
package host
