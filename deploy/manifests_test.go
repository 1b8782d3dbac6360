package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// manifests are all objects of a file.
type manifests struct {
	account   *corev1.ServiceAccount
	roles     []*rbacv1.ClusterRole
	bindings  []*rbacv1.ClusterRoleBinding
	configMap *corev1.ConfigMap
	daemonSet *appsv1.DaemonSet
}

// read decodes a file. A field that is unknown or there twice fails the
// test, and so does an object of a kind that is not expected.
func read(t *testing.T, file string) *manifests {
	t.Helper()
	m := &manifests{}
	for _, object := range decode(t, file) {
		m.add(t, object)
	}
	if m.account == nil || m.configMap == nil || m.daemonSet == nil {
		t.Fatal("there is no ServiceAccount, no ConfigMap or no DaemonSet")
	}
	return m
}

func (m *manifests) add(t *testing.T, object runtime.Object) {
	t.Helper()
	where := namespace
	switch o := object.(type) {
	case *corev1.ServiceAccount:
		m.account = o
	case *corev1.ConfigMap:
		m.configMap = o
	case *appsv1.DaemonSet:
		m.daemonSet = o
	case *rbacv1.ClusterRole:
		m.roles, where = append(m.roles, o), ""
	case *rbacv1.ClusterRoleBinding:
		m.bindings, where = append(m.bindings, o), ""
	default:
		t.Errorf("unexpected %T", object)
	}
	if o := object.(metav1.Object); o.GetNamespace() != where {
		t.Errorf("%T %s is in namespace %q, want %q", object, o.GetName(), o.GetNamespace(), where)
	}
}

// mounted is the content of a file of the ConfigMap, by its path in a container.
func (m *manifests) mounted(t *testing.T, c corev1.Container, file string) string {
	t.Helper()
	for _, mount := range c.VolumeMounts {
		if mount.MountPath != path.Dir(file) {
			continue
		}
		for _, v := range m.daemonSet.Spec.Template.Spec.Volumes {
			if v.Name == mount.Name && v.ConfigMap != nil && v.ConfigMap.Name == m.configMap.Name {
				if content, ok := m.configMap.Data[path.Base(file)]; ok {
					return content
				}
			}
		}
	}
	t.Fatalf("container %s has no file %s of the ConfigMap", c.Name, file)
	return ""
}

func decode(t *testing.T, file string) []runtime.Object {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	serializer := kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		kjson.SerializerOptions{Yaml: true, Strict: true})
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var objects []runtime.Object
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		object, _, err := serializer.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, object)
	}
}
