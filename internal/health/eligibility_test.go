package health

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/model"
)

// heard is a sink that keeps what it is told.
type heard struct {
	events []model.Event
	synced bool
}

func (h *heard) Update(events ...model.Event) { h.events = append(h.events, events...) }
func (h *heard) Synced()                      { h.synced = true }

func TestNodeIsEligibleUntilItIsMarkedForRemovalOrDeleted(t *testing.T) {
	var (
		staying = model.SetNode{Node: &model.Node{Name: "here"}}
		tainted = model.SetNode{Node: &model.Node{Name: "here", Leaving: "tainted"}}
		gone    = model.SetNode{}
		other   = model.DeleteService{Name: web}
	)
	tests := []struct {
		name string
		in   []model.Event
		want string
	}{
		{"nothing heard", nil, ""},
		{"never been there", []model.Event{gone}, ""},
		{"there", []model.Event{gone, staying}, ""},
		{"marked for removal", []model.Event{staying, tainted}, "tainted"},
		{"mark taken back", []model.Event{tainted, staying}, ""},
		{"deleted", []model.Event{staying, gone}, "the Node object was deleted"},
		{"deleted, which nothing but a Node changes", []model.Event{staying, gone, other, gone}, "the Node object was deleted"},
		{"created again", []model.Event{staying, gone, staying}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var eligibility Eligibility
			sink := eligibility.Watch(&heard{})
			sink.Update(tt.in...)
			if got := eligibility.Leaving(); got != tt.want {
				t.Errorf("leaving is %q, want %q", got, tt.want)
			}
		})
	}
}

func TestWatchHandsEverythingOn(t *testing.T) {
	behind := &heard{}
	sink := new(Eligibility).Watch(behind)
	want := []model.Event{model.DeleteService{Name: web}, model.SetNode{Node: &model.Node{Name: "here"}}, model.DeleteService{Name: mail}}
	sink.Update(want[:2]...)
	sink.Update(want[2:]...)
	sink.Synced()
	if diff := cmp.Diff(want, behind.events); diff != "" || !behind.synced {
		t.Errorf("synced %v, events (-want +got):\n%s", behind.synced, diff)
	}
}
