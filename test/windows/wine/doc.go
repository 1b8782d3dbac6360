// Package wine is a Windows machine for tests: a prefix of wine in a network namespace with the addresses of
// a node, and a Host Networking Service (HNS) that is a fake behind the real ABI. A DLL passes the calls of
// Windows programs on to package fakehns in the process of the test. No packet is balanced.
//
// It needs root, wine and the compiler for Windows, which the Makefile installs.
package wine
