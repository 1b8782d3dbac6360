package model

import (
	"encoding/json"
	"testing"
)

// A Problem in JSON has its object as a kind and a name, and as the text that it was before.
func TestProblemInJSON(t *testing.T) {
	for _, tt := range []struct {
		in   Problem
		want string
	}{
		{Problem{Object: Object{"Service", "default", "web"}, Field: "spec.x", Reason: "odd", Remedy: "mend it"},
			`{"object":"Service default/web","kind":"Service","namespace":"default","name":"web","field":"spec.x","reason":"odd","remedy":"mend it"}`},
		{Problem{Object: NodeObject("here"), Reason: "odd"}, `{"object":"Node here","kind":"Node","name":"here","reason":"odd"}`},
		{Problem{Object: Object{Kind: "Cluster CIDR"}, Reason: "odd"}, `{"object":"Cluster CIDR","kind":"Cluster CIDR","reason":"odd"}`},
	} {
		text, err := json.Marshal(tt.in)
		if err != nil || string(text) != tt.want {
			t.Errorf("%s, %v\nwant %s", text, err, tt.want)
		}
		var back Problem
		if err := json.Unmarshal(text, &back); err != nil || back != tt.in {
			t.Errorf("%s was read as %+v, %v", text, back, err)
		}
	}
	var old Problem
	if err := json.Unmarshal([]byte(`{"object":"Service default/web","reason":"odd"}`), &old); err != nil || old.String() != "Service default/web: odd" {
		t.Errorf("a problem of an earlier version was read as %q, %v", old, err)
	}
}
