package source

import "sluice/internal/model"

// Retraction is the event that takes back what another one set.
func Retraction(e model.Event) model.Event {
	switch e := e.(type) {
	case model.SetService:
		return model.DeleteService{Name: e.Name}
	case model.SetSlice:
		return model.DeleteSlice{Name: e.Name}
	case model.SetServiceCIDR:
		return model.DeleteServiceCIDR{Name: e.Name}
	}
	return model.SetNode{}
}
