// Package status tells on one screen how a running proxy is: what it knows, how
// much of that is in the kernel, what it did last, and what does not work.
//
// A Reporter reads the engine, and a History remembers the last commits. A
// Report is data, for programs; Write makes text of it, for people.
package status
