// Package cli is the command line of kube-proxy: its commands and their flags. Without a
// command it runs the proxy until a signal ends the process.
package cli
