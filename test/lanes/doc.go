//go:build linux

// Command lanes runs the checks and tests of this repository, several at a time: most of
// them wait for packets, for pauses or for a guest, so that one after the other would leave
// processors idle.
//
//	go run ./test/lanes quick          what finds most faults, in a few minutes
//	go run ./test/lanes test           what must hold before a change lands
//	go run ./test/lanes full           everything there is, for a night
//	go run ./test/lanes test lab unit  two of its lanes
//
// A lane is a list of steps, one after the other. On a terminal a line for each lane says how
// far it is and what takes long; elsewhere each package is a line when it ends. The output of
// what failed comes at the end, in one piece, with the slowest packages.
package main
