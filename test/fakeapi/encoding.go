package fakeapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// encoding is how objects are sent.
type encoding struct {
	contentType string
	object      func(runtime.Object) ([]byte, error)
	event       func(name string, object runtime.Object) ([]byte, error)
}

var (
	inJSON     = &encoding{runtime.ContentTypeJSON, func(o runtime.Object) ([]byte, error) { return json.Marshal(o) }, jsonEvent}
	inProtobuf = &encoding{runtime.ContentTypeProtobuf, protobufObject, protobufEvent}

	objects = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	events  = protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme)
)

// encodingFor is the one that a client prefers: it names that first.
func encodingFor(r *http.Request) *encoding {
	if strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		return inProtobuf
	}
	return inJSON
}

func jsonEvent(name string, object runtime.Object) ([]byte, error) {
	line, err := json.Marshal(map[string]any{"type": name, "object": object})
	return append(line, '\n'), err
}

func protobufObject(object runtime.Object) ([]byte, error) {
	var b bytes.Buffer
	err := objects.Encode(object, &b)
	return b.Bytes(), err
}

func protobufEvent(name string, object runtime.Object) ([]byte, error) {
	inner, err := protobufObject(object)
	if err != nil {
		return nil, err
	}
	var event, frame bytes.Buffer
	if err := events.Encode(&metav1.WatchEvent{Type: name, Object: runtime.RawExtension{Raw: inner}}, &event); err != nil {
		return nil, err
	}
	_, err = protobuf.LengthDelimitedFramer.NewFrameWriter(&frame).Write(event.Bytes())
	return frame.Bytes(), err
}
