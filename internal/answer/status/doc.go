// Package status reports the state of a running proxy on one screen: what it knows,
// how much of that is in the kernel, the last changes, and what does not work.
//
// A Reporter reads the engine and the history. A Report is data, for programs; Write
// formats it as text, for people.
package status
