package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strings"

	sigsjson "sigs.k8s.io/json"

	"sluice/internal/source"
)

// strictReport reports what strict decoding finds.
type strictReport struct{ *source.Report }

// unknown reports a field that is unknown or repeated.
func (r strictReport) unknown(kind string, object any, err error) {
	var field string
	var fieldError sigsjson.FieldError
	if errors.As(err, &fieldError) {
		field = fieldError.FieldPath()
	}
	if strings.HasPrefix(err.Error(), "duplicate field") {
		r.repeated(field)
		return
	}
	r.Malformed(field, remedyForField(object, field), "%s has no such field", kind)
}

func (r strictReport) repeated(field string) {
	r.Malformed(field, "keep one of them", "the field is there more than once")
}

// indices are those in the path of a field.
var indices = regexp.MustCompile(`\[\d+\]`)

// shapes are the names of types for people who read YAML.
var shapes = map[reflect.Kind]string{
	reflect.Bool: "boolean", reflect.String: "string", reflect.Slice: "list", reflect.Struct: "mapping", reflect.Map: "mapping",
}

// mistyped reports that the object does not have the shape of its kind.
func (r strictReport) mistyped(raw []byte, err error) {
	var typeError *json.UnmarshalTypeError
	if !errors.As(err, &typeError) {
		r.Malformed("", "correct the value", "%s", strings.TrimPrefix(err.Error(), "json: "))
		return
	}
	kind := typeError.Type.Kind()
	shape := cmp.Or(shapes[kind], "whole number")
	remedy := "write a " + shape
	switch {
	case kind == reflect.String:
		remedy = "put the value in quotes"
	case shapes[kind] == "" && typeError.Value == "string":
		remedy = "write the number without quotes"
	}
	field := typeError.Field
	if path, ok := pathAt(raw, typeError.Offset); ok && field == indices.ReplaceAllString(path, "") {
		field = path
	}
	r.Malformed(field, remedy, "there is a %s where a %s belongs", typeError.Value, shape)
}
