package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"sigs.k8s.io/yaml"

	"sluice/internal/base/yamlsyntax"
	"sluice/internal/model"
)

// mistyped finds the values of a file that have the wrong type. The decoder stops at the
// first of them, and names neither its line nor a remedy, and not always the field.
func mistyped(data []byte) Errors {
	raw, err := yaml.YAMLToJSON(data)
	if err != nil || kindOf(raw) != mapping {
		return nil
	}
	f := &typeFinder{at: yamlsyntax.Locate(data)}
	f.walk(raw, reflect.TypeFor[Configuration](), "")
	slices.SortStableFunc(f.found, func(a, b model.Problem) int { return cmp.Compare(f.at.Line(a.Field), f.at.Line(b.Field)) })
	return f.found
}

// typeFinder collects the values that do not have the type of their field.
type typeFinder struct {
	at    *yamlsyntax.Fields
	found []model.Problem
}

// The types of values, for people who read YAML.
const (
	mapping  = "mapping"
	list     = "list"
	word     = "string"
	number   = "number"
	boolean  = "boolean"
	duration = "duration"
	size     = "size"
	nothing  = "null"
)

// kindOf returns the type of a value in JSON.
func kindOf(raw []byte) string {
	switch strings.TrimSpace(string(raw))[0] {
	case '{':
		return mapping
	case '[':
		return list
	case '"':
		return word
	case 't', 'f':
		return boolean
	case 'n':
		return nothing
	}
	return number
}

// wantedBy returns the type of value that a field takes.
func wantedBy(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration]():
		return duration
	case reflect.TypeFor[resource.QuantityValue]():
		return size
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return mapping
	case reflect.Slice:
		return list
	case reflect.String:
		return word
	case reflect.Bool:
		return boolean
	}
	return number
}

func (f *typeFinder) walk(raw []byte, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	want := wantedBy(t)
	_, readsItself := reflect.New(t).Interface().(json.Unmarshaler) // and has fields of no concern to a file
	switch {
	case want == mapping && t.Kind() == reflect.Struct && kindOf(raw) == mapping && !readsItself:
		var members map[string]json.RawMessage
		if json.Unmarshal(raw, &members) != nil {
			return
		}
		for name, value := range members {
			if field := member(reflect.New(t).Elem(), name); field.IsValid() {
				f.walk(value, field.Type(), strings.TrimPrefix(path+"."+name, "."))
			}
		}
	case want == list && kindOf(raw) == list:
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return
		}
		for i, item := range items {
			f.walk(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	case json.Unmarshal(raw, reflect.New(t).Interface()) != nil:
		reason, remedy := mismatch(raw, want)
		f.found = append(f.found, problem(path, fmt.Sprintf("line %d: %s", f.at.Line(path), reason), remedy))
	}
}

// mismatch says what is wrong with a value, and what to write in its place.
func mismatch(raw []byte, want string) (reason, remedy string) {
	got := kindOf(raw)
	reason = fmt.Sprintf("there is a %s where a %s belongs", got, want)
	remedy = "write a " + want
	switch {
	case want == duration && got == number:
		remedy = fmt.Sprintf("write %ss for seconds", raw)
	case want == duration:
		if got == word {
			reason = fmt.Sprintf("%s is not a duration", raw)
		}
		remedy = "write numbers with units, such as 30s, 5m or 1h30m"
	case want == size:
		remedy = "write a number of bytes, such as 64Ki"
	case want == word && got == list:
		var items []string
		if json.Unmarshal(raw, &items) == nil && len(items) > 0 {
			remedy = fmt.Sprintf("write %q", strings.Join(items, ","))
		}
	case want == word:
		remedy = "put the value in quotes"
	case want == list && got == word:
		remedy = fmt.Sprintf("write [%s]", raw)
	case want == boolean:
		remedy = "write true or false"
	case want == got:
		reason = fmt.Sprintf("%s is not a value that this field can have", raw)
		remedy = "write a whole number"
	}
	return reason, remedy
}
