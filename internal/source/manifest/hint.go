package manifest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sluice/internal/base/spelling"
	"sluice/internal/base/yamlsyntax"
)

// remedyForField says what to do about a field that a type does not have: it may be
// misspelt, or indented as if it belonged elsewhere.
func remedyForField(object any, path string) string {
	parent, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, name = path[:i], path[i+1:]
	}
	of := typeAt(reflect.TypeOf(object), parent)
	fields := yamlsyntax.FieldsOf(of)
	if meant := spelling.Nearest(name, slices.Sorted(maps.Keys(fields))); meant != "" {
		return "did you mean " + meant + "?"
	}
	for _, below := range slices.Sorted(maps.Keys(fields)) {
		if yamlsyntax.FieldsOf(elem(fields[below]))[name] != nil {
			return fmt.Sprintf("it belongs below %s: indent it further", below)
		}
	}
	if above := parent[:max(0, strings.LastIndexByte(parent, '.'))]; parent != "" && yamlsyntax.FieldsOf(typeAt(reflect.TypeOf(object), above))[name] != nil {
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
		if t = yamlsyntax.FieldsOf(t)[name]; t == nil {
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
