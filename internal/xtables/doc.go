// Package xtables asks the kernel about the tables of legacy iptables without
// its programs: which there are, how large they are, what their chains are called
// and where their rules lead. Whoever wants to change them needs the programs.
//
// It works in the network namespace of the caller's thread; a Socket stays in
// that which it was opened in.
package xtables
