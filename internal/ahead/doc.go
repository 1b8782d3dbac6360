// Package ahead lets two processors share a walk over what takes time to make:
// one makes the next value while the other uses the one before.
package ahead
