package kubernetes

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
)

func TestFakeClient(t *testing.T) {
	client := fake.NewClientset(aService("web", "10.96.0.1"), aSlice("web-1", "10.0.0.1"), aNode("here", "192.0.2.1"))
	f := follow(t, nil, func(o *Options) { o.Client = client })
	f.inSync()
	for _, word := range []string{"service default/web [10.96.0.1]", "slice default/web-1 of web [10.0.0.1]", "node here [192.0.2.1]"} {
		if !f.heard(word) {
			t.Errorf("in sync without: %s", word)
		}
	}
	if _, err := client.CoreV1().Services("default").Update(context.Background(), aService("web", "10.96.0.2"), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.hears("service default/web [10.96.0.2]")
}

func newFakeClient() clientset.Interface { return fake.NewClientset() }
