// Package services reads what there is to say of a Service: its object and slices, the frontends that
// it has and those that it lost to others, its endpoints, its traffic, and what is wrong with it.
// Whatever answers questions about Services takes these facts from here, and the word for its state
// from package verdict.
package services
