package plan

import "testing"

func TestEveryValueHasAText(t *testing.T) {
	texts := map[string][]string{}
	for v := Reject; v <= Pass; v++ {
		texts["Verdict"] = append(texts["Verdict"], v.Text())
	}
	for c := NoEndpoints; c <= NodePortsOnly; c++ {
		texts["Cause"] = append(texts["Cause"], c.Text())
	}
	for m := MasqueradeNever; m <= MasqueradeAlways; m++ {
		texts["Masquerade"] = append(texts["Masquerade"], m.Text())
	}
	for c := PodsNotDetected; c <= EndpointIsNode; c++ {
		texts["MasqueradeCause"] = append(texts["MasqueradeCause"], c.Text())
	}
	for r := OtherFamily; r <= NotHere; r++ {
		texts["Reason"] = append(texts["Reason"], r.Text())
	}
	for kind, all := range texts {
		seen := map[string]bool{}
		for i, text := range all {
			if text == "" || seen[text] {
				t.Errorf("value %d of %s is %q", i, kind, text)
			}
			seen[text] = true
		}
	}
}
