// Package architecture tests what docs/architecture.md says about packages: that
// imports point down its list, and that each thing has one home. It has no code
// of its own.
package architecture
