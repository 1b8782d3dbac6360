// Package listing lists the Services of the node: their addresses, how many endpoints
// they have, whether they work, and how busy they are.
//
// A List is data, for programs; Write formats it as text, for people.
package listing
