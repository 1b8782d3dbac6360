// Package command is the command line of kube-proxy. It parses the flags, connects
// sources, engine and dataplane, and runs them until a signal ends the process.
//
// The rules stay in the kernel when the process exits, so that connections keep
// working while it is restarted or replaced. Only --cleanup removes them.
package command
