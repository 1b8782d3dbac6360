package yamlsyntax

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"

	"sluice/internal/base/printable"
)

// Misfit is a value that does not have the type of its field.
type Misfit struct{ Path, Reason, Remedy string }

// maxMisfits is how many are found: more only help those who fill memory.
const maxMisfits = 100

// Misfits finds the values of a mapping in JSON that do not have the types of the fields of a struct,
// by path. Decoders stop at the first of them, and name no remedy, and not always the field.
func Misfits(raw []byte, t reflect.Type) []Misfit {
	var f typeFinder
	if typeOf(raw) == mapping {
		f.walk(raw, t, "")
	}
	return f.found
}

type typeFinder struct{ found []Misfit }

// The types of values, for people who read YAML.
const (
	mapping  = "mapping"
	list     = "list"
	word     = "string"
	number   = "number"
	whole    = "whole number"
	boolean  = "boolean"
	duration = "duration"
	size     = "size"
	nothing  = "null"
	special  = "" // a type that reads its values itself
)

// typeOf returns the type of a value in JSON.
func typeOf(raw []byte) string {
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0 || raw[0] == 'n':
		return nothing
	case raw[0] == '{':
		return mapping
	case raw[0] == '[':
		return list
	case raw[0] == '"':
		return word
	case raw[0] == 't' || raw[0] == 'f':
		return boolean
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
	if _, readsItself := reflect.New(t).Interface().(json.Unmarshaler); readsItself {
		return special
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
	case reflect.Float32, reflect.Float64:
		return number
	}
	return whole
}

func (f *typeFinder) walk(raw []byte, t reflect.Type, path string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	want, got := wantedBy(t), typeOf(raw)
	switch {
	case want == mapping && got == mapping:
		var members map[string]json.RawMessage
		_ = json.Unmarshal(raw, &members) // it was parsed before
		types := FieldsOf(t)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			of := types[name]
			if t.Kind() == reflect.Map {
				of = t.Elem()
			}
			if of != nil {
				f.walk(members[name], of, strings.TrimPrefix(path+"."+name, "."))
			}
		}
	case want == list && got == list:
		var items []json.RawMessage
		_ = json.Unmarshal(raw, &items)
		for i, item := range items {
			f.walk(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	default:
		if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil && len(f.found) < maxMisfits {
			reason, remedy := misfit(raw, want, err)
			f.found = append(f.found, Misfit{path, reason, remedy})
		}
	}
}

// FieldsOf returns the types of the fields of a struct by their names in JSON, none of other types.
func FieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	if t == nil || t.Kind() != reflect.Struct {
		return out
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			maps.Copy(out, FieldsOf(f.Type))
		case name != "" && name != "-":
			out[name] = f.Type
		}
	}
	return out
}

// misfit says what is wrong with a value, and what to write in its place.
func misfit(raw []byte, want string, err error) (reason, remedy string) {
	got, shown := typeOf(raw), printable.Cut(string(raw))
	reason = fmt.Sprintf("there is a %s where a %s belongs", got, want)
	remedy = "write a " + want
	switch {
	case want == special:
		return strings.TrimPrefix(err.Error(), "json: "), "correct the value"
	case want == duration && got == number:
		remedy = fmt.Sprintf("write %ss for seconds", shown)
	case want == duration:
		if got == word {
			reason = fmt.Sprintf("%s is not a duration", shown)
		}
		remedy = "write numbers with units, such as 30s, 5m or 1h30m"
	case want == size:
		remedy = "write a number of bytes, such as 64Ki"
	case want == word && got == list:
		var items []string
		if json.Unmarshal(raw, &items) == nil && len(items) > 0 {
			remedy = fmt.Sprintf("write %q", printable.Cut(strings.Join(items, ",")))
		}
	case want == word:
		remedy = "put the value in quotes"
	case want == list && got == word:
		remedy = fmt.Sprintf("write [%s]", shown)
	case want == boolean:
		remedy = "write true or false"
	case want != number && want != whole:
	case got == word && typeOf(raw[1:]) == number && json.Valid(bytes.Trim(raw, `"`)):
		remedy = "write the number without quotes"
	case got == number:
		reason = fmt.Sprintf("%s is not a value that this field can have", shown)
	}
	return reason, remedy
}
