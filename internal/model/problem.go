package model

import "encoding/json"

// Problem is a defect of an object, reported to its owner. The names of its fields
// in JSON are an interface and never change.
type Problem struct {
	Object
	Field  string `json:"field,omitempty"`  // path of the field, "spec.ports[0].port"
	Reason string `json:"reason"`           // what is wrong
	Remedy string `json:"remedy,omitempty"` // what to do about it
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
