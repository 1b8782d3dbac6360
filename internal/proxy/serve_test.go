package proxy

import (
	"testing"

	"sluice/internal/model"
)

func TestEventsNameTheObjectByItsUID(t *testing.T) {
	state := model.NewState()
	state.Apply(&model.Dirty{},
		model.SetService{Service: &model.Service{Name: model.Name{Namespace: "default", Name: "web"}, UID: "one"}},
		model.SetSlice{Slice: &model.Slice{Name: model.Name{Namespace: "default", Name: "web"}, Service: "web", UID: "two"}})
	tests := []struct {
		name string
		in   model.Object
		want string
	}{
		{"Service", model.Object{Kind: "Service", Namespace: "default", Name: "web"}, "one"},
		{"EndpointSlice", model.Object{Kind: "EndpointSlice", Namespace: "default", Name: "web"}, "two"},
		{"Service that went away", model.Object{Kind: "Service", Namespace: "default", Name: "mail"}, ""},
		{"EndpointSlice that went away", model.Object{Kind: "EndpointSlice", Namespace: "default", Name: "mail"}, ""},
		{"object of which none is kept", model.Object{Kind: "ServiceCIDR", Name: "web"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := uidIn(state, test.in); got != test.want {
				t.Errorf("UID is %q, want %q", got, test.want)
			}
		})
	}
}
