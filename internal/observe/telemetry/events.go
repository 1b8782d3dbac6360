package telemetry

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"sluice/internal/model"
)

// Reasons of Events. Those that upstream has too have its names.
const (
	ReasonStarting                        = "Starting"
	ReasonFailedToStartProxierHealthcheck = "FailedToStartProxierHealthcheck"
	ReasonFailedToStartMetricServer       = "FailedToStartMetricServer"
	ReasonFailedToStartServiceHealthcheck = "FailedToStartServiceHealthcheck"
	ReasonDefaultMode                     = "KubeProxyDefaultMode"
	ReasonIPTablesConflict                = "IPTablesConflict"
	ReasonNodeProblem                     = "NodeProblem"
	ReasonLoopbackNodePortNotServed       = "LoopbackNodePortNotServed"
	ReasonServiceNotProgrammed            = "ServiceNotProgrammed"
	ReasonPartlyIgnored                   = "PartlyIgnored"
	ReasonEndpointsNotAnswering           = "EndpointsNotAnswering"
	ReasonEndpointEjected                 = "EndpointEjected"
)

// Actions of Events.
const (
	actionStart   = "StartKubeProxy"
	actionListen  = "Listen"
	actionProgram = "Program"
	actionRead    = "Read"
)

// maxNoteBytes is the API's limit of the note of an Event.
const maxNoteBytes = 1024

// Event is an Event of the Kubernetes API.
type Event struct {
	Regarding model.Object
	Warning   bool
	Reason    string
	Action    string
	Note      string
}

// Recorder records Events, without blocking.
type Recorder interface{ Record(Event) }

// Starting is the Event of a proxy that starts.
func Starting(node string) Event {
	return Event{Regarding: model.NodeObject(node), Reason: ReasonStarting, Action: actionStart}
}

// DefaultMode is the Event of a proxy whose mode was not configured.
func DefaultMode(node, mode, why string) Event {
	return warning(model.NodeObject(node), ReasonDefaultMode, actionStart, fmt.Sprintf("kube-proxy runs in %s mode: %s", mode, why))
}

// IPTablesConflict is the Event of rules of other programs on a node that affect Services.
func IPTablesConflict(node string, p model.Problem) Event {
	return warning(model.NodeObject(node), ReasonIPTablesConflict, actionProgram, p.String())
}

// NodeProblem is the Event of what else is wrong with a node and affects Services.
func NodeProblem(node string, p model.Problem) Event {
	return warning(model.NodeObject(node), ReasonNodeProblem, actionProgram, p.String())
}

// FailedToStartProxierHealthcheck is the Event of a health server that cannot listen.
func FailedToStartProxierHealthcheck(node string, err error) Event {
	return warning(model.NodeObject(node), ReasonFailedToStartProxierHealthcheck, actionStart, err.Error())
}

// FailedToStartMetricServer is the Event of a metrics server that cannot listen.
func FailedToStartMetricServer(node string, err error) Event {
	return warning(model.NodeObject(node), ReasonFailedToStartMetricServer, actionStart, err.Error())
}

// FailedToStartServiceHealthcheck is the Event of a health check node port that a
// node cannot serve.
func FailedToStartServiceHealthcheck(node string, service model.Name, err error) Event {
	return warning(model.ServiceObject(service), ReasonFailedToStartServiceHealthcheck, actionListen,
		fmt.Sprintf("Node %s cannot serve the health check node port: %v", node, err))
}

// LoopbackNodePortNotServed is the Event of a node port that a node cannot serve on a
// loopback address.
func LoopbackNodePortNotServed(node string, service model.Name, err error) Event {
	return warning(model.ServiceObject(service), ReasonLoopbackNodePortNotServed, actionListen,
		fmt.Sprintf("Node %s cannot serve a node port on a loopback address: %v", node, err))
}

// EndpointEjected is the Event of an endpoint that a node leaves out because it does not answer.
func EndpointEjected(node string, service model.Name, e *model.Ejection) Event {
	return warning(model.ServiceObject(service), ReasonEndpointEjected, actionProgram,
		fmt.Sprintf("Node %s sends no new connections to %s: %s", node, e.Endpoint, e.Text()))
}

func warning(about model.Object, reason, action, note string) Event {
	return Event{Regarding: about, Warning: true, Reason: reason, Action: action, Note: note}
}

// LogRecorder returns a Recorder that logs Events, for use without an API server. It
// logs at a high verbosity, because what leads to an Event is logged as well.
func LogRecorder(log logr.Logger) Recorder { return logRecorder{log.V(2)} }

type logRecorder struct{ logr.Logger }

func (l logRecorder) Record(e Event) {
	l.Info("Event", "kind", e.Regarding.Kind, "namespace", e.Regarding.Namespace, "name", e.Regarding.Name,
		"warning", e.Warning, "reason", e.Reason, "note", e.Note)
}

// NewAPIRecorder returns a Recorder that writes to the API server until ctx ends. UID
// returns the UIDs of objects, by which kubectl describe finds their Events, or "" if
// unknown; it may be nil. Nodes need none.
func NewAPIRecorder(ctx context.Context, client kubernetes.Interface, uid func(model.Object) types.UID) (Recorder, error) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		broadcaster.Shutdown()
		return nil, fmt.Errorf("start recording Events: %w", err)
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	if uid == nil {
		uid = func(model.Object) types.UID { return "" }
	}
	return apiRecorder{broadcaster.NewRecorder(scheme.Scheme, component), uid}, nil
}

type apiRecorder struct {
	recorder events.EventRecorder
	uid      func(model.Object) types.UID
}

func (r apiRecorder) Record(e Event) {
	about := &corev1.ObjectReference{
		APIVersion: apiVersions[e.Regarding.Kind],
		Kind:       e.Regarding.Kind, Namespace: e.Regarding.Namespace, Name: e.Regarding.Name,
		UID: r.uid(e.Regarding),
	}
	if e.Regarding.Kind == "Node" {
		about.UID = types.UID(e.Regarding.Name) // as all components refer to nodes
	}
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	r.recorder.Eventf(about, nil, kind, e.Reason, e.Action, "%s", shorten(e.Note, maxNoteBytes))
}

// apiVersions are those of the kinds that have Events.
var apiVersions = map[string]string{
	"Node":          "v1",
	"Service":       "v1",
	"EndpointSlice": "discovery.k8s.io/v1",
}

// shorten cuts a text to a number of bytes, at the end of a character.
func shorten(text string, most int) string {
	const mark = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(mark)], "") + mark
}
