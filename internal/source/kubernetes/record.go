package kubernetes

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice/internal/model"
)

// record stands for an API object between the client and the store. The
// reflector collects whole lists of them, so they are small.
type record struct {
	// ObjectMeta holds only what the reflector reads: name, version, and the
	// annotations of bookmarks.
	metav1.ObjectMeta
	events []model.Event // that set what the object means
}

// recordList is a list of records, or one page of it.
type recordList struct {
	metav1.ListMeta
	Items []*record
}

var (
	_ runtime.Object = (*record)(nil)
	_ metav1.Object  = (*record)(nil)
	_ runtime.Object = (*recordList)(nil)
)

func newRecord(o metav1.Object) *record {
	return &record{ObjectMeta: metav1.ObjectMeta{
		Namespace:       o.GetNamespace(),
		Name:            o.GetName(),
		ResourceVersion: o.GetResourceVersion(),
	}}
}

func (r *record) name() model.Name { return model.Name{Namespace: r.Namespace, Name: r.Name} }

func (r *record) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject shares the events, which are immutable.
func (r *record) DeepCopyObject() runtime.Object {
	return &record{ObjectMeta: *r.ObjectMeta.DeepCopy(), events: r.events}
}

func (l *recordList) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

func (l *recordList) DeepCopyObject() runtime.Object {
	out := &recordList{ListMeta: *l.ListMeta.DeepCopy(), Items: make([]*record, len(l.Items))}
	for i, r := range l.Items {
		out.Items[i] = r.DeepCopyObject().(*record)
	}
	return out
}
