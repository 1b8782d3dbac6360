// Package nodecondition tells the cluster, by the Node object, whether the Services of a node work: by a
// condition, and by the removal of a taint that keeps pods away until then.
//
// It reads the Node before it writes, and writes only what differs. What fails is logged once, and retried
// until it succeeds. A condition stays when the process ends, as the rules do.
package nodecondition

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Type is the condition's type. That of a proxy with a name has the name behind a dot.
const Type = "sluice/ServicesProgrammed"

const (
	// every is how often the proxy is asked whether it is ready.
	every = time.Second
	// retry is the pause after a write that failed, and between two writes about a proxy that is not
	// ready: its reason may have a number in it that changes all the time.
	retry = 10 * time.Second
	// conflicts is how often a write is tried again at once that another one came before.
	conflicts = 5
	// refresh is how often the Node is read again: another program may have changed it.
	refresh = 5 * time.Minute
)

// Nodes is the part of a client that is used.
type Nodes interface {
	Get(context.Context, string, metav1.GetOptions) (*corev1.Node, error)
	Patch(ctx context.Context, name string, t types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (*corev1.Node, error)
}

// Options configures a Reporter.
type Options struct {
	Nodes Nodes
	Node  string // name
	// NotReady returns why the proxy does not serve, "" if it does: what /readyz says.
	NotReady func() string
	// UID returns that of the Node as far as it is known here: one that was made anew says nothing, and has its
	// taints again.
	UID func() string
	// Condition is the type of the condition to keep up; "" for none.
	Condition string
	// Taint is the key of the taint to remove; "" for none.
	Taint  string
	Logger logr.Logger
	Clock  clock.Clock
}

// reported is what the Node says.
type reported struct {
	uid, notReady string
	at            time.Time // zero for nothing
}

// due reports whether the Node is to be looked at.
func (r reported) due(uid, notReady string, now time.Time) bool {
	switch age := now.Sub(r.at); {
	case r.at.IsZero(), uid != r.uid, (notReady == "") != (r.notReady == ""):
		return true
	case notReady != r.notReady:
		return age >= retry
	default:
		return age >= refresh
	}
}

// Run reports until ctx ends.
func Run(ctx context.Context, o Options) error {
	var last reported
	var failed string
	for {
		pause := every
		if uid, why := o.UID(), o.NotReady(); last.due(uid, why, o.Clock.Now()) {
			switch err := o.report(ctx, why); {
			case err == nil:
				last, failed = reported{uid, why, o.Clock.Now()}, ""
			case ctx.Err() != nil:
				return nil
			default:
				pause = retry
				if err.Error() != failed {
					failed = err.Error()
					o.Logger.Error(err, "The Node does not say whether Services work", "remedy", remedy(err))
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-o.Clock.After(pause):
		}
	}
}

func remedy(err error) string {
	if apierrors.IsForbidden(err) {
		return "allow the proxy to get and patch nodes, and to patch nodes/status, or leave out --node-condition and --startup-taint"
	}
	return "it is tried again"
}

func (o *Options) report(ctx context.Context, notReady string) error {
	node, err := o.Nodes.Get(ctx, o.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get Node %s: %w", o.Node, err)
	}
	if o.Condition != "" {
		if node, err = o.setCondition(ctx, node, notReady); err != nil {
			return err
		}
	}
	if o.Taint == "" || notReady != "" {
		return nil
	}
	for range conflicts {
		if err = o.removeTaint(ctx, node); !apierrors.IsConflict(err) {
			return err
		}
		// Another one has written the Node meanwhile, as a kubelet does all the time.
		if node, err = o.Nodes.Get(ctx, o.Node, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("get Node %s: %w", o.Node, err)
		}
	}
	return o.removeTaint(ctx, node)
}

// condition returns what the Node should say.
func (o *Options) condition(notReady string) corev1.NodeCondition {
	now := metav1.NewTime(o.Clock.Now())
	c := corev1.NodeCondition{Type: corev1.NodeConditionType(o.Condition), Status: corev1.ConditionTrue, Reason: "Programmed",
		Message: "kube-proxy has programmed all Services", LastTransitionTime: now, LastHeartbeatTime: now}
	if notReady != "" {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "NotProgrammed", "kube-proxy does not serve: "+notReady
	}
	return c
}

func (o *Options) setCondition(ctx context.Context, node *corev1.Node, notReady string) (*corev1.Node, error) {
	want := o.condition(notReady)
	if at := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == want.Type }); at >= 0 {
		now := node.Status.Conditions[at]
		if now.Status == want.Status {
			want.LastTransitionTime = now.LastTransitionTime
			if now.Message == want.Message {
				return node, nil
			}
		}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{want}}})
	if err != nil {
		return nil, err
	}
	node, err = o.Nodes.Patch(ctx, o.Node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, fmt.Errorf("set condition %s of Node %s: %w", want.Type, o.Node, err)
	}
	o.Logger.Info("The Node says whether Services work", "condition", want.Type, "status", want.Status, "message", want.Message)
	return node, nil
}

// removeTaint removes all taints of the key. Taints are written as a whole, so the version of the Node that
// they were read from goes along: the server refuses if another one changed it meanwhile.
func (o *Options) removeTaint(ctx context.Context, node *corev1.Node) error {
	left := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return t.Key == o.Taint })
	if len(left) == len(node.Spec.Taints) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": left},
	})
	if err != nil {
		return err
	}
	if _, err := o.Nodes.Patch(ctx, o.Node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("remove taint %s from Node %s: %w", o.Taint, o.Node, err)
	}
	o.Logger.Info("Removed the start-up taint from the Node", "taint", o.Taint)
	return nil
}
