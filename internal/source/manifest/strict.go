package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"strings"

	sigsjson "sigs.k8s.io/json"

	"sluice/internal/source"
)

// strictReport reports what strict decoding finds.
type strictReport struct{ *source.Report }

// unknown reports a field that is unknown or repeated.
func (r strictReport) unknown(kind string, err error) {
	var field string
	var fieldError sigsjson.FieldError
	if errors.As(err, &fieldError) {
		field = fieldError.FieldPath()
	}
	if strings.HasPrefix(err.Error(), "duplicate field") {
		r.repeated(field)
		return
	}
	r.Malformed(field, "remove the field or correct its name", "%s has no such field", kind)
}

func (r strictReport) repeated(field string) {
	r.Malformed(field, "keep one of them", "the field is there more than once")
}

// shapes are the names of types for people who read YAML.
var shapes = map[reflect.Kind]string{
	reflect.Bool: "boolean", reflect.String: "string", reflect.Slice: "list", reflect.Struct: "mapping", reflect.Map: "mapping",
}

// mistyped reports that the object does not have the shape of its kind.
func (r strictReport) mistyped(err error) {
	var typeError *json.UnmarshalTypeError
	if !errors.As(err, &typeError) {
		r.Malformed("", "correct the value", "%s", strings.TrimPrefix(err.Error(), "json: "))
		return
	}
	kind := typeError.Type.Kind()
	shape := cmp.Or(shapes[kind], "whole number that fits "+kind.String())
	remedy := "write a " + shape
	if kind == reflect.String {
		remedy = "put the value in quotes"
	}
	r.Malformed(typeError.Field, remedy, "there is a %s where a %s belongs", typeError.Value, shape)
}
