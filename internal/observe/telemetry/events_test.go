//go:build linux

package telemetry

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"sluice/internal/model"
	"sluice/internal/testkit"
)

// recorded waits until so many Events are in the API server.
func recorded(t *testing.T, client *fake.Clientset, count int) []eventsv1.Event {
	t.Helper()
	var out []eventsv1.Event
	testkit.Eventually(t, func() error {
		list, err := client.EventsV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) < count {
			return fmt.Errorf("there are %d Events, want %d", len(list.Items), count)
		}
		out = list.Items
		return nil
	})
	slices.SortFunc(out, func(a, b eventsv1.Event) int { return strings.Compare(a.Reason+a.Note, b.Reason+b.Note) })
	return out
}

func TestEventsReachTheAPIServer(t *testing.T) {
	taken := errors.New("address already in use")
	uid := func(o model.Object) types.UID { return types.UID("uid of " + o.Name) }
	webRef := corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "default", Name: "web", UID: "uid of web"}
	nodeRef := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "here", UID: "here"}
	tests := []struct {
		in        Event
		about     corev1.ObjectReference
		namespace string
		kind      string
		reason    string
		action    string
		note      string
	}{
		{Starting("here"), nodeRef, "default", "Normal", "Starting", "StartKubeProxy", ""},
		{DefaultMode("here", "iptables", "because"), nodeRef, "default", "Warning", "KubeProxyDefaultMode", "StartKubeProxy", "kube-proxy runs in iptables mode: because"},
		{IPTablesConflict("here", model.Problem{Object: model.Object{Kind: "iptables-nft"}, Field: "chain FORWARD", Reason: "drops", Remedy: "accept"}), nodeRef,
			"default", "Warning", "IPTablesConflict", "Program", "iptables-nft: chain FORWARD: drops (accept)"},
		{NodeProblem("here", model.Problem{Object: model.Object{Kind: "Kernel"}, Field: "net.ipv4.ip_forward", Reason: "it is 0", Remedy: "set it"}), nodeRef,
			"default", "Warning", "NodeProblem", "Program", "Kernel: net.ipv4.ip_forward: it is 0 (set it)"},
		{FailedToStartMetricServer("here", taken), nodeRef, "default", "Warning", "FailedToStartMetricServer", "StartKubeProxy", taken.Error()},
		{FailedToStartProxierHealthcheck("here", taken), nodeRef, "default", "Warning", "FailedToStartProxierHealthcheck", "StartKubeProxy", taken.Error()},
		{FailedToStartServiceHealthcheck("here", web, taken), webRef, "default", "Warning", "FailedToStartServiceHealthcheck", "Listen",
			"Node here cannot serve the health check node port: address already in use"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			client := fake.NewClientset()
			recorder, err := NewAPIRecorder(t.Context(), client, uid)
			if err != nil {
				t.Fatal(err)
			}
			recorder.Record(tt.in)
			e := recorded(t, client, 1)[0]
			if diff := cmp.Diff(tt.about, e.Regarding); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
			want := []string{tt.namespace, tt.kind, tt.reason, tt.action, tt.note, "kube-proxy"}
			if diff := cmp.Diff(want, []string{e.Namespace, e.Type, e.Reason, e.Action, e.Note, e.ReportingController}); diff != "" {
				t.Errorf("Event (-want +got):\n%s", diff)
			}
			if e.ReportingInstance == "" || e.EventTime.IsZero() {
				t.Errorf("the API server would refuse %+v", e)
			}
		})
	}
}

func TestANoteIsTextAndNoFormat(t *testing.T) {
	client := fake.NewClientset()
	recorder, err := NewAPIRecorder(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	recorder.Record(FailedToStartMetricServer("here", errors.New("100%s taken")))
	if e := recorded(t, client, 1)[0]; e.Note != "100%s taken" {
		t.Errorf("note is %q", e.Note)
	}
}

func TestLongNotesAreCut(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 5000), strings.Repeat("ü", 5000), strings.Repeat("ü", 512), "short"} {
		got := shorten(text, maxNoteBytes)
		if len(got) > maxNoteBytes || !utf8.ValidString(got) {
			t.Errorf("%d bytes became %d, valid: %v", len(text), len(got), utf8.ValidString(got))
		}
		if len(text) <= maxNoteBytes && got != text {
			t.Errorf("%q was cut to %q", text, got)
		}
	}
}

func TestEventsAreLoggedWithoutAPIServer(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{Verbosity: 2})
	LogRecorder(log).Record(FailedToStartMetricServer("here", errors.New("taken")))
	if len(lines) != 1 || !strings.Contains(lines[0], "FailedToStartMetricServer") || !strings.Contains(lines[0], "taken") {
		t.Errorf("logged %q", lines)
	}
}
