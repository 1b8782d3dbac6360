package model

import (
	"cmp"
	"strings"
)

// Object is what a Problem is about: an object of the API by its kind and name, or something else
// by a kind alone, such as "Kernel". The names of its fields in JSON are an interface and never
// change.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// ServiceObject returns a Service as an Object.
func ServiceObject(n Name) Object { return Object{"Service", n.Namespace, n.Name} }

// SliceObject returns an EndpointSlice as an Object.
func SliceObject(n Name) Object { return Object{"EndpointSlice", n.Namespace, n.Name} }

// NodeObject returns a Node as an Object.
func NodeObject(name string) Object { return Object{Kind: "Node", Name: name} }

// Service returns the name of a Service, and whether it is one.
func (o Object) Service() (Name, bool) { return o.of("Service") }

// Slice returns the name of an EndpointSlice, and whether it is one.
func (o Object) Slice() (Name, bool) { return o.of("EndpointSlice") }

func (o Object) of(kind string) (Name, bool) {
	if o.Kind != kind {
		return Name{}, false
	}
	return Name{Namespace: o.Namespace, Name: o.Name}, true
}

// String returns the kind and the name: "Service default/web".
func (o Object) String() string {
	switch {
	case o.Name == "":
		return o.Kind
	case o.Namespace == "":
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Compare orders objects by kind, then by namespace and name.
func (o Object) Compare(other Object) int {
	return cmp.Or(strings.Compare(o.Kind, other.Kind), strings.Compare(o.Namespace, other.Namespace),
		strings.Compare(o.Name, other.Name))
}
