package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sluice/internal/base/spelling"
)

// remedyForField says what to do about a field that a type does not have: it may be
// misspelt, or indented as if it belonged elsewhere.
func remedyForField(object any, path string) string {
	parent, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, name = path[:i], path[i+1:]
	}
	of := typeAt(reflect.TypeOf(object), parent)
	fields := fieldsOf(of)
	if meant := spelling.Nearest(name, slices.Sorted(maps.Keys(fields))); meant != "" {
		return "did you mean " + meant + "?"
	}
	for _, below := range slices.Sorted(maps.Keys(fields)) {
		if fieldsOf(elem(fields[below]))[name] != nil {
			return fmt.Sprintf("it belongs below %s: indent it further", below)
		}
	}
	if above := parent[:max(0, strings.LastIndexByte(parent, '.'))]; parent != "" && fieldsOf(typeAt(reflect.TypeOf(object), above))[name] != nil {
		return "it belongs one level higher: indent it less"
	}
	return "remove the field or correct its name"
}

// typeAt returns the type of the field at a path, such as spec.ports[0]; nil if there
// is none.
func typeAt(t reflect.Type, path string) reflect.Type {
	t = elem(t)
	for part := range strings.SplitSeq(path, ".") {
		if part == "" {
			continue
		}
		name, _, _ := strings.Cut(part, "[")
		if t = fieldsOf(t)[name]; t == nil {
			return nil
		}
		t = elem(t)
	}
	return t
}

// elem returns what pointers and lists are of.
func elem(t reflect.Type) reflect.Type {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) {
		t = t.Elem()
	}
	return t
}

// fieldsOf returns the types of the fields of a struct by their names in JSON, none of
// other types.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	if t == nil || t.Kind() != reflect.Struct {
		return out
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			maps.Copy(out, fieldsOf(elem(f.Type)))
		case name != "" && name != "-":
			out[name] = f.Type
		}
	}
	return out
}

// pathAt returns the path of the value of a JSON document that ends at an offset, with
// the indices that decoders leave out of their errors.
func pathAt(raw []byte, offset int64) (string, bool) {
	type level struct {
		list  bool
		index int
		key   string
		isKey bool // the next token of a mapping is a key
	}
	var stack []level
	path := func() string {
		var out strings.Builder
		for _, l := range stack {
			if l.list {
				fmt.Fprintf(&out, "[%d]", l.index)
			} else {
				out.WriteString("." + l.key)
			}
		}
		return strings.TrimPrefix(out.String(), ".")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	for {
		token, err := decoder.Token()
		if err != nil {
			return "", false
		}
		top := len(stack) - 1
		delim, isDelim := token.(json.Delim)
		switch {
		case isDelim && (delim == '}' || delim == ']'):
			stack = stack[:top]
			top--
		case top >= 0 && stack[top].isKey:
			stack[top].key, _ = token.(string)
			stack[top].isKey = false
			continue
		case isDelim:
			stack = append(stack, level{list: delim == '[', isKey: delim == '{'})
			continue
		}
		if decoder.InputOffset() >= offset {
			return path(), true
		}
		if top >= 0 { // a value is complete
			stack[top].isKey = !stack[top].list
			stack[top].index++
		}
	}
}
