// Package explain says what happens to a packet and why: which frontend it
// meets, which endpoints it may reach and which not, under which source address,
// what the kernel holds for it, and what to do if it does not get through.
//
// The verdict is read off plan.Desired, the reasons come from the evidence that
// plan gives for its own decisions, and the state of things from the engine and
// the kernel. Nothing about Services is decided here a second time.
//
// An answer is data, for programs; Write makes text of it, for people.
package explain
