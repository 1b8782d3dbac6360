package manifest

import (
	"errors"
	"reflect"
	"strings"

	sigsjson "sigs.k8s.io/json"

	"sluice/internal/base/yamlsyntax"
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

// mistyped reports values that do not have the types of their fields, for which decoding has failed.
func (r strictReport) mistyped(raw []byte, object any, err error) {
	found := yamlsyntax.Misfits(raw, reflect.TypeOf(object))
	for _, m := range found {
		r.Malformed(m.Path, m.Remedy, "%s", m.Reason)
	}
	if len(found) == 0 {
		r.Malformed("", "correct the value", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
}
