// Package proxy assembles and runs the proxy: it connects sources, engine, dataplane, their
// observers and the servers that answer questions, and keeps up the rest of the kernel.
//
// The rules stay in the kernel when Run returns, so that connections keep working while the
// process is restarted or replaced. Only Cleanup removes them.
package proxy
