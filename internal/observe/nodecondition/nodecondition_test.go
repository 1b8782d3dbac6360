package nodecondition

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// fakeNodes has one Node, and knows only the patches that are made here. Each write changes the version.
type fakeNodes struct {
	node    corev1.Node
	version int
	patches []string
	err     error
	// meanwhile is how often another program writes the Node between a Get and a Patch.
	meanwhile int
}

func (f *fakeNodes) Get(context.Context, string, metav1.GetOptions) (*corev1.Node, error) {
	node := f.node.DeepCopy()
	if f.meanwhile > 0 {
		f.meanwhile--
		f.written()
	}
	return node, nil
}

func (f *fakeNodes) written() {
	f.version++
	f.node.ResourceVersion = strconv.Itoa(f.version)
}

func (f *fakeNodes) Patch(_ context.Context, _ string, _ types.PatchType, data []byte, _ metav1.PatchOptions, sub ...string) (*corev1.Node, error) {
	if f.err != nil {
		return nil, f.err
	}
	var patch corev1.Node
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, err
	}
	if v := patch.ResourceVersion; v != "" && v != f.node.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, f.node.Name, errors.New("the object has been modified"))
	}
	f.patches = append(f.patches, strings.Join(sub, "")+string(data))
	if err := json.Unmarshal(data, &f.node); err != nil {
		return nil, err
	}
	f.written()
	return f.node.DeepCopy(), nil
}

// Only what differs is written, and the time of a transition is that of the change.
func TestOnlyDifferencesAreWritten(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	f := &fakeNodes{node: corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "0"},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "other"}, {Key: "wait"}}}}}
	o := &Options{Nodes: f, Node: "n", Condition: Type, Taint: "wait", Logger: logr.Discard(), Clock: clock}
	report := func(why string, patches int) {
		t.Helper()
		f.patches = nil
		clock.Step(time.Minute)
		if err := o.report(t.Context(), why); err != nil || len(f.patches) != patches {
			t.Errorf("%q: %v, %v", why, f.patches, err)
		}
	}
	report("starting", 1)
	if len(f.node.Spec.Taints) != 2 {
		t.Error("a taint is gone before the proxy is ready")
	}
	report("starting", 0)
	since := f.node.Status.Conditions[0].LastTransitionTime
	report("the kernel refuses", 1)
	if c := f.node.Status.Conditions[0]; c.Status != corev1.ConditionFalse || !c.LastTransitionTime.Equal(&since) {
		t.Errorf("the condition is %+v", c)
	}
	report("", 2)
	if c := f.node.Status.Conditions[0]; c.Status != corev1.ConditionTrue || c.LastTransitionTime.Equal(&since) {
		t.Errorf("the condition is %+v", c)
	}
	if !strings.Contains(f.patches[1], `"resourceVersion":`) || len(f.node.Spec.Taints) != 1 || f.node.Spec.Taints[0].Key != "other" {
		t.Errorf("%s leaves %v", f.patches[1], f.node.Spec.Taints)
	}
	report("", 0)
	f.err = errors.New("refused")
	if err := o.report(t.Context(), "late"); err == nil || !strings.Contains(err.Error(), "set condition "+Type) {
		t.Error(err)
	}
}

// A kubelet writes the Node all the time. The taint is removed nonetheless, and none of another is lost.
func TestTaintIsRemovedThoughOthersWrite(t *testing.T) {
	f := &fakeNodes{meanwhile: conflicts, node: corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "0"},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "wait"}, {Key: "other"}}}}}
	o := &Options{Nodes: f, Node: "n", Taint: "wait", Logger: logr.Discard(), Clock: clocktesting.NewFakeClock(time.Unix(1000, 0))}
	if err := o.report(t.Context(), ""); err != nil || len(f.node.Spec.Taints) != 1 || f.node.Spec.Taints[0].Key != "other" {
		t.Errorf("%v, left are %v", err, f.node.Spec.Taints)
	}
	f.meanwhile, f.node.Spec.Taints = 1000, []corev1.Taint{{Key: "wait"}}
	if err := o.report(t.Context(), ""); !apierrors.IsConflict(err) {
		t.Errorf("for ever others write first: %v", err)
	}
}

// The Node is written at once if the proxy becomes ready or no longer is, rarely for another reason why it is
// not, and read again from time to time.
func TestWhenTheNodeIsLookedAt(t *testing.T) {
	at := time.Unix(1000, 0)
	tests := map[string]struct {
		last     reported
		notReady string
		after    time.Duration
		due      bool
	}{
		"at the start":          {due: true},
		"ready":                 {reported{"a", "starting", at}, "", 0, true},
		"no longer ready":       {reported{"a", "", at}, "the kernel refuses", 0, true},
		"another reason":        {reported{"a", "1 s", at}, "2 s", retry - 1, false},
		"another reason, later": {reported{"a", "1 s", at}, "2 s", retry, true},
		"the same":              {reported{"a", "", at}, "", refresh - 1, false},
		"the same, for long":    {reported{"a", "", at}, "", refresh, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if due := test.last.due("a", test.notReady, at.Add(test.after)); due != test.due {
				t.Errorf("due is %t", due)
			}
			if !test.last.due("b", test.notReady, at.Add(test.after)) {
				t.Error("a Node that was made anew is not due")
			}
		})
	}
}
