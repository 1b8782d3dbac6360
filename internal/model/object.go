package model

import (
	"cmp"
	"encoding/json"
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

// Problem is a defect of an object, reported to its owner. The names of its fields
// in JSON are an interface and never change.
type Problem struct {
	Object
	Field  string `json:"field,omitempty"`  // path of the field, "spec.ports[0].port"
	Reason string `json:"reason"`           // what is wrong
	Remedy string `json:"remedy,omitempty"` // what to do about it
	// Code identifies the reason where programs count it, and never changes; empty for most.
	Code string `json:"code,omitempty"`
	// Malformed means that an API server would have refused the value.
	Malformed bool `json:"-"`
}

func (p Problem) String() string {
	s := p.Object.String() + ": " + p.What()
	if p.Remedy != "" {
		s += " (" + p.Remedy + ")"
	}
	return s
}

// What is what is wrong with the object, without its name and the remedy.
func (p Problem) What() string {
	if p.Field == "" {
		return p.Reason
	}
	return p.Field + ": " + p.Reason
}

// withoutMethods is a Problem in JSON, but for the text of its object.
type withoutMethods Problem

// MarshalJSON adds the field object, the text of the object, for readers from before there was a
// kind and a name.
func (p Problem) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Text string `json:"object"`
		withoutMethods
	}{p.Object.String(), withoutMethods(p)})
}

// UnmarshalJSON also reads a Problem that has the text of its object only.
func (p *Problem) UnmarshalJSON(data []byte) error {
	in := struct {
		Text string `json:"object"`
		*withoutMethods
	}{withoutMethods: (*withoutMethods)(p)}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	if p.Kind == "" {
		p.Kind = in.Text
	}
	return nil
}
