// Package windows runs kube-proxy.exe in wine, against a fake of the Host Networking Service (HNS) behind the
// real ABI. What HNS itself would do with the calls is not shown, and docs/windows.md says how much that
// leaves open. Package wine is the machine; module test/cluster compares with upstream's kube-proxy.exe.
//
//	make windows-lab
package windows
