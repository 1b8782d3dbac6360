// Package xtables reads the tables of legacy iptables from the kernel without its
// commands: which exist, their size, their chains and where their rules lead. Changing
// them needs the commands.
//
// It works in the network namespace of the caller's thread; a Socket stays in the one
// in which it was opened.
package xtables
