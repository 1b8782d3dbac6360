package kubernetes

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice/internal/model"
)

// record stands for an API object between the client and the store.
type record struct {
	// ObjectMeta holds only what the reflector reads: name, version, and the
	// annotations of bookmarks.
	metav1.ObjectMeta
	events []model.Event // that set what the object means
}

// recordList stands for a list, or one page of it, whose objects the store has already.
type recordList struct {
	metav1.ListMeta
	Items []*record // none: the reflector asks for them
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
	return &recordList{ListMeta: *l.ListMeta.DeepCopy()}
}
