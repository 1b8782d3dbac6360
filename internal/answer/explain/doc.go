// Package explain explains what happens to a packet and why: which frontend it
// meets, which endpoints it may reach and which not, under which source address,
// what the kernel holds for it, and what to do if it does not get through.
//
// The verdict comes from plan.Desired, the reasons from the evidence that plan gives
// for its decisions, their wording from the Text methods of plan, and the status from
// the engine and the kernel. Nothing about Services is decided here again.
//
// An answer is data, for programs; Write formats it as text, for people.
package explain
