// Package windows runs kube-proxy.exe in wine, against a Host Networking Service (HNS) that is a fake
// behind the real ABI: a DLL passes the calls that a Windows program makes to package fakehns in the
// test. No packet is balanced. What HNS itself would do with the calls is not shown, and docs/windows.md
// says how much that leaves open.
//
// It needs root, wine and the compiler for Windows, which the Makefile installs:
//
//	make windows-lab
package windows
