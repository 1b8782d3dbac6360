package source

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLeavingNode(t *testing.T) {
	deleted := metav1.NewTime(time.Unix(10_000, 0))
	tainted := func(keys ...string) v1.Node {
		var taints []v1.Taint
		for _, key := range keys {
			taints = append(taints, v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule})
		}
		return v1.Node{Spec: v1.NodeSpec{Taints: taints}}
	}
	tests := []struct {
		name string
		in   v1.Node
		want string
	}{
		{"no taint", v1.Node{}, ""},
		{"other taints", tainted("node.kubernetes.io/unschedulable", "DeletionCandidateOfClusterAutoscaler"), ""},
		{
			"the autoscaler's taint among others", tainted("a", "ToBeDeletedByClusterAutoscaler", "b"),
			"the cluster autoscaler is about to remove the node (taint ToBeDeletedByClusterAutoscaler)",
		},
		{"being deleted", v1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted}}, "the Node object is being deleted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Node(&tt.in).Leaving; got != tt.want {
				t.Errorf("leaving is %q, want %q", got, tt.want)
			}
		})
	}
}
