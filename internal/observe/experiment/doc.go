// Package experiment tries what a packet to a Service meets, by one real connection from the
// node or from the network namespace of a pod, and says what it means if that is not what
// was predicted.
//
// A Result says how the connection ended, which endpoint the kernel chose and under which
// address that endpoint sees the client. The connection is closed as soon as it is answered,
// and waits for at most Timeout; nothing else is sent, and nothing is changed.
package experiment
