// Package socketerror names the errors of sockets that mean something to us. Windows has numbers of its own
// for them: those that package syscall has there by the names of Unix are returned by no call.
package socketerror
