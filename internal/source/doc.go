// Package source converts Kubernetes API objects to model values, for every source
// of objects.
//
// The conversions are pure and total. What is malformed in an object is left out of
// the value and recorded among its problems; the rest of the object stays in use. A
// conversion that returns false says that the object is not for this proxy. Values
// keep nothing of the object they came from alive but its names: other strings are shared and slices
// have exactly the capacity they need, so that a quarter of a million endpoints fit
// in a few tens of megabytes.
//
// Objects that do not come from an API server are validated as well: Kinds lists the
// kinds that a proxy uses, and Refused says which problems an API server would have
// refused an object for.
package source
