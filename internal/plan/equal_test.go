package plan

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"sluice/internal/model"
)

// TestEveryFieldIsCompared: a field that is added to a frontend, to a route or to an endpoint makes a difference, or
// somebody decides here that it does not.
func TestEveryFieldIsCompared(t *testing.T) {
	ignored := map[string]bool{"Key": true} // it says which frontend it is
	full := func() *Frontend { return &Frontend{Outside: &Route{}} }
	differ := func(name string, at func(*Frontend) reflect.Value) {
		f := full()
		if err := setOther(at(f)); err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if len(f.Differences(full())) == 0 || len(full().Differences(f)) == 0 {
			t.Errorf("frontends that differ in %s are the same", name)
		}
		for _, field := range f.Differences(full()) {
			if field.Text() == "" {
				t.Errorf("field %d has no name", field)
			}
		}
	}
	frontend := reflect.TypeFor[Frontend]()
	for i := range frontend.NumField() {
		if name := frontend.Field(i).Name; name != "Route" && !ignored[name] {
			differ(name, func(f *Frontend) reflect.Value { return reflect.ValueOf(f).Elem().Field(i) })
		}
	}
	route := reflect.TypeFor[Route]()
	for i := range route.NumField() {
		differ("Route."+route.Field(i).Name, func(f *Frontend) reflect.Value { return reflect.ValueOf(&f.Route).Elem().Field(i) })
		differ("Outside."+route.Field(i).Name, func(f *Frontend) reflect.Value { return reflect.ValueOf(f.Outside).Elem().Field(i) })
	}
	if Field(NumFields-1).Text() == "" {
		t.Error("the last field has no name")
	}
}

// setOther gives a variable another value.
func setOther(v reflect.Value) error {
	switch v.Interface().(type) {
	case []Endpoint:
		v.Set(reflect.ValueOf([]Endpoint{{Weight: 1}}))
		return nil
	case []netip.Prefix:
		v.Set(reflect.ValueOf([]netip.Prefix{{}}))
		return nil
	case model.Name:
		v.Set(reflect.ValueOf(model.Name{Name: "other"}))
		return nil
	case Refusal:
		v.Set(reflect.ValueOf(Refusal{Verdict: Drop, Cause: NoLocalEndpoints}))
		return nil
	}
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil():
		v.SetZero()
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case v.CanUint():
		v.SetUint(1)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.String:
		v.SetString("other")
	default:
		return fmt.Errorf("decide how two of type %s differ", v.Type())
	}
	return nil
}
