// Package command is the command line of kube-proxy. It reads the flags, wires
// sources, engine and dataplane together and runs them until a signal ends
// the process.
//
// A process that ends leaves its rules in the kernel, so that connections work
// on while it is restarted or replaced. Only --cleanup removes them.
package command
