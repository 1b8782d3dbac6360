// Package source turns Kubernetes API objects into model values, for every
// source of objects alike.
//
// The conversions are pure and total. What is malformed in an object is left
// out of the value and recorded among its problems; the rest of the object
// stays in use. A conversion that answers false says that the object is not
// for this proxy. Values keep nothing of the object they came from alive:
// strings are interned and slices have exactly the capacity they need, so that
// a quarter of a million endpoints fit in a few tens of megabytes.
package source
