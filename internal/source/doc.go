// Package source converts Kubernetes API objects to model values, for every
// source of objects.
//
// The conversions are pure and total. Malformed fields of an object are left
// out of the value and recorded among its problems; the rest of the object
// stays in use. A conversion that returns false says that the object is not for
// this proxy. Values keep nothing of their object alive: strings are interned
// and slices have exactly the capacity they need, so that a quarter of a
// million endpoints fit in a few tens of megabytes.
package source
