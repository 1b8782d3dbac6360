package telemetry

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/component-base/metrics"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

// Labels that several metrics have.
const (
	labelFamily = "ip_family"
	labelPolicy = "traffic_policy"
)

// Values of labels.
const (
	policyInternal = "internal"
	policyExternal = "external"

	kindApply     = "apply"
	kindReconcile = "reconcile"
)

// Metrics are those that others set. The ones that are not registered, because
// the mode does not have them, take values and forget them.
type Metrics struct {
	// families are those that the node can do: there are no numbers of others.
	families []model.Family

	// Upstream's, of every mode.
	syncDuration, networkProgramming, conntrackDuration               *metrics.HistogramVec
	lastSync, lastQueued, noLocalEndpoints                            *metrics.GaugeVec
	endpointChangesPending, serviceChangesPending                     *metrics.GaugeVec
	endpointChanges, serviceChanges, healthz, livez, conntrackDeleted *metrics.CounterVec

	// Upstream's, of some modes.
	fullSyncDuration, partialSyncDuration                *metrics.HistogramVec
	syncFailures, cleanupFailures                        *metrics.CounterVec
	loopbackListeners                                    *metrics.GaugeVec
	loopbackFailures, loopbackRejected, loopbackAccepted *metrics.CounterVec

	// Our own.
	frontends, problems, invalid, refused, advisories, verdict, connected, draining, ejected *metrics.GaugeVec
	directNodes, directFallbacks                                                             *metrics.GaugeVec
	flowTableDevices, flowTableConnections                                                   *metrics.GaugeVec
	commits, commitFailures, conntrackPasses, conntrackFailures, conntrackSeen, ejections    *metrics.CounterVec
	directProbes, directPackets, directReceived                                              *metrics.CounterVec
	transactionElements, programming                                                         *metrics.HistogramVec
}

// NewMetrics returns metrics of which those that a mode has are registered.
func NewMetrics(registry Registry, mode dataplane.Mode, families []model.Family) (*Metrics, error) {
	m := &Metrics{families: families}
	m.defineUpstream()
	m.defineLoopback()
	m.defineOwn()
	var problems []error
	for _, metric := range append(m.ofEveryMode(), m.ofMode(mode)...) {
		if err := registry.Register(metric); err != nil {
			problems = append(problems, fmt.Errorf("register metric %s: %w", metric.FQName(), err))
		}
	}
	m.beginLoopback()
	m.Draining(0)
	m.Ejected(0)
	m.FlowTable(0, nil)
	m.ejections.WithLabelValues().Add(0)
	return m, errors.Join(problems...)
}

func (m *Metrics) ofEveryMode() []metrics.Registerable {
	return []metrics.Registerable{
		m.syncDuration, m.lastSync, m.lastQueued, m.networkProgramming,
		m.endpointChangesPending, m.endpointChanges, m.serviceChangesPending, m.serviceChanges,
		m.noLocalEndpoints, m.healthz, m.livez, m.conntrackDuration, m.conntrackDeleted,
		m.frontends, m.problems, m.invalid, m.refused, m.advisories, m.verdict, m.connected, m.commits, m.commitFailures, m.transactionElements, m.programming,
		m.conntrackPasses, m.conntrackFailures, m.conntrackSeen, m.draining, m.ejected, m.ejections,
		m.directNodes, m.directFallbacks, m.directProbes, m.directPackets, m.directReceived,
	}
}

// ofMode lists the metrics that a mode shows beside those of every mode.
func (m *Metrics) ofMode(mode dataplane.Mode) (out []metrics.Registerable) {
	for _, metric := range []metrics.Registerable{
		m.fullSyncDuration, m.partialSyncDuration, m.syncFailures, m.cleanupFailures,
		m.loopbackListeners, m.loopbackFailures, m.loopbackRejected, m.loopbackAccepted,
		m.flowTableDevices, m.flowTableConnections,
	} {
		if slices.Contains(mode.Metrics, metric.FQName()) {
			out = append(out, metric)
		}
	}
	return out
}

func (m *Metrics) defineUpstream() {
	syncBuckets := metrics.ExponentialBuckets(0.001, 2, 15)
	m.syncDuration = histogram("kubeproxy_sync_proxy_rules_duration_seconds", "How long commits took.", syncBuckets, labelFamily)
	m.fullSyncDuration = histogram("kubeproxy_sync_full_proxy_rules_duration_seconds", "How long commits took that compared the kernel with everything desired.", syncBuckets, labelFamily)
	m.partialSyncDuration = histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds", "How long commits took that wrote only what changed.", syncBuckets, labelFamily)
	m.lastSync = gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "When all was last known to be programmed as desired.", labelFamily)
	m.lastQueued = gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "When something to program last came in.", labelFamily)
	m.networkProgramming = histogram("kubeproxy_network_programming_duration_seconds",
		"Time from what changed an EndpointSlice, as its annotation says, until the change was programmed.",
		programmingBuckets(), labelFamily)
	m.endpointChangesPending = gauge("kubeproxy_sync_proxy_rules_endpoint_changes_pending", "Changes of EndpointSlices that came in and are not programmed yet.")
	m.endpointChanges = counter("kubeproxy_sync_proxy_rules_endpoint_changes_total", "Changes of EndpointSlices that came in.")
	m.serviceChangesPending = gauge("kubeproxy_sync_proxy_rules_service_changes_pending", "Changes of Services that came in and are not programmed yet.")
	m.serviceChanges = counter("kubeproxy_sync_proxy_rules_service_changes_total", "Changes of Services that came in.")
	m.noLocalEndpoints = gauge("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "Service ports with traffic policy Local that have endpoints, but none on this node.", labelPolicy, labelFamily)
	m.syncFailures = counter("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "Commits to nftables that failed, as a whole or for some frontends.", labelFamily)
	m.cleanupFailures = counter("kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total", "Frontends whose removal from nftables was refused.", labelFamily)
	m.healthz = counter("kubeproxy_proxy_healthz_total", "Answers on /healthz of the health server, by HTTP status.", "code")
	m.livez = counter("kubeproxy_proxy_livez_total", "Answers on /livez of the health server, by HTTP status.", "code")
	m.conntrackDuration = histogram("kubeproxy_conntrack_reconciler_sync_duration_seconds", "How long passes over the connection tracking table took.", syncBuckets, labelFamily)
	m.conntrackDeleted = counter("kubeproxy_conntrack_reconciler_deleted_entries_total", "Stale entries deleted from the connection tracking table.", labelFamily)
}

// programmingBuckets are fine up to a minute and coarse up to five. Upstream has
// the one for 0 too, by accident of a library, and so by now on purpose.
func programmingBuckets() []float64 {
	return slices.Concat([]float64{0, 0.25, 0.5},
		metrics.LinearBuckets(1, 1, 60), metrics.LinearBuckets(65, 5, 11), metrics.LinearBuckets(120, 30, 7))
}

func (m *Metrics) defineOwn() {
	m.frontends = gauge("sluice_frontends", "Frontends by how far they are programmed.", "status")
	m.problems = gauge("sluice_objects_with_problems", "Objects that are partly ignored because of errors.")
	m.invalid = gauge("sluice_invalid_manifests", "Mistakes for which manifests are not used.")
	m.refused = gauge("sluice_refused_manifests", "The name of sluice_invalid_manifests in earlier builds, for one release.")
	m.verdict = gauge("sluice_proxy_verdict", "1 for what the proxy does: serving, serving-the-past, not-yet or not-serving.", "verdict")
	m.advisories = gauge("sluice_advisories", "What the administrator of the node should fix, by subject.", "about")
	m.connected = gauge("sluice_api_server_connected", "1 if the API server answers, 0 if it cannot be reached.")
	m.commits = counter("sluice_commits_total", "Commits that succeeded.", "kind")
	m.commitFailures = counter("sluice_commit_failures_total", "Commits that failed as a whole.")
	m.transactionElements = histogram("sluice_transaction_elements", "Objects that a commit wrote.", metrics.ExponentialBuckets(1, 4, 10))
	m.programming = histogram("sluice_programming_seconds", "Time from when a change came in until it was programmed.", metrics.ExponentialBuckets(0.001, 2, 16))
	m.conntrackPasses = counter("sluice_conntrack_passes_total", "Passes over the connection tracking table.")
	m.conntrackFailures = counter("sluice_conntrack_failures_total", "Passes over the connection tracking table that failed.")
	m.conntrackSeen = counter("sluice_conntrack_entries_seen_total", "Entries of the connection tracking table that were looked at.")
	m.ejected = gauge("sluice_ejected_endpoints", "Endpoints of Services that get no new connections because they do not answer.")
	m.ejections = counter("sluice_endpoint_ejections_total", "How often endpoints of Services were left out because they did not answer.")
	m.directNodes = gauge("sluice_direct_return_nodes", "Other nodes, by whether packets are handed to them for direct return: only if their state is proven.", labelFamily, "state")
	m.directProbes = counter("sluice_direct_return_probes_total", "Rounds of probes through other nodes, by whether they came back.", "result")
	m.directPackets = counter("sluice_direct_return_packets_total", "Packets of clients that were handed to other nodes: as they came (first), put together from fragments, or to a node that may know their connection (second-chance).", "kind")
	m.directReceived = counter("sluice_direct_return_received_connections_total", "Connections of clients outside that each other node has handed to this one; those of nodes beyond the first 50 together.", labelNode)
	m.directFallbacks = gauge("sluice_direct_return_fallbacks", "Services that ask for direct return and are served the ordinary way, at least in part, by why.", "reason")
	m.flowTableDevices = gauge("sluice_flow_table_devices", "Devices at which a flow table of the kernel forwards established connections; 0 if it is off, or not there.")
	m.flowTableConnections = gauge("sluice_flow_table_connections", "Connections that flow tables forwarded when they were last counted.", labelFamily)
	m.draining = gauge("sluice_draining_connections", "Connections of an earlier kube-proxy that are left to end.")
}

// Draining sets how many connections of an earlier kube-proxy are left.
func (m *Metrics) Draining(connections int) {
	m.draining.WithLabelValues().Set(float64(connections))
}

// FlowTable sets at how many devices flow tables forward, and how many connections of each family.
func (m *Metrics) FlowTable(devices int, connections map[model.Family]int) {
	m.flowTableDevices.WithLabelValues().Set(float64(devices))
	for _, f := range m.families {
		m.flowTableConnections.WithLabelValues(f.String()).Set(float64(connections[f]))
	}
}

func (m *Metrics) has(f model.Family) bool { return slices.Contains(m.families, f) }

// Answered counts an answer of the health server.
func (m *Metrics) Answered(path string, status int) {
	answers := m.healthz
	if path == "/livez" {
		answers = m.livez
	}
	answers.WithLabelValues(strconv.Itoa(status)).Inc()
}

func histogram(name, help string, buckets []float64, labels ...string) *metrics.HistogramVec {
	return metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: name, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA,
	}, labels)
}

func gauge(name, help string, labels ...string) *metrics.GaugeVec {
	return metrics.NewGaugeVec(&metrics.GaugeOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
}

func counter(name, help string, labels ...string) *metrics.CounterVec {
	return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
}

// Ejected sets how many endpoints are left out because they do not answer.
func (m *Metrics) Ejected(endpoints int) { m.ejected.WithLabelValues().Set(float64(endpoints)) }

// Ejection counts that an endpoint is left out.
func (m *Metrics) Ejection() { m.ejections.WithLabelValues().Inc() }

// labelProtocol is the label of the transport protocol.
const labelProtocol = "protocol"

func (m *Metrics) defineLoopback() {
	m.loopbackListeners = gauge("kubeproxy_nftables_localhost_nodeport_listeners", "Node ports that are listened on on loopback addresses.", labelFamily)
	m.loopbackFailures = counter("kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total", "Tries to listen on a node port on a loopback address that failed.", labelFamily)
	m.loopbackRejected = counter("kubeproxy_nftables_localhost_nodeport_rejected_packets_total",
		"TCP connections and UDP packets to node ports on loopback addresses that no endpoint took, and first packets to those that are not served there.", labelFamily, labelProtocol)
	m.loopbackAccepted = counter("kubeproxy_iptables_localhost_nodeports_accepted_packets_total", "Connections accepted by node ports on loopback addresses.")
}

// beginLoopback sets zeros, once the metrics are registered: rates need them before the
// first failure.
func (m *Metrics) beginLoopback() {
	m.loopbackAccepted.WithLabelValues().Add(0)
	for _, family := range m.families {
		m.loopbackListeners.WithLabelValues(family.String()).Set(0)
		m.loopbackFailures.WithLabelValues(family.String()).Add(0)
		for _, protocol := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
			m.loopbackRejected.WithLabelValues(family.String(), protocol.String()).Add(0)
		}
	}
}

// LoopbackListening sets how many node ports of a family have a listener on loopback
// addresses.
func (m *Metrics) LoopbackListening(family model.Family, ports int) {
	if !m.has(family) {
		return // there are none
	}
	m.loopbackListeners.WithLabelValues(family.String()).Set(float64(ports))
}

// LoopbackNotListening counts a failure to listen.
func (m *Metrics) LoopbackNotListening(family model.Family) {
	m.loopbackFailures.WithLabelValues(family.String()).Inc()
}

// LoopbackRefused counts a connection or packet that no endpoint accepted.
func (m *Metrics) LoopbackRefused(family model.Family, protocol model.Protocol) {
	m.loopbackRejected.WithLabelValues(family.String(), protocol.String()).Inc()
}

// LoopbackUnserved counts packets to node ports that are not served on loopback addresses.
func (m *Metrics) LoopbackUnserved(of dataplane.LoopbackPackets, packets uint64) {
	m.loopbackRejected.WithLabelValues(of.Family.String(), of.Protocol.String()).Add(float64(packets))
}

// LoopbackAccepted counts a connection or UDP client that got an endpoint.
func (m *Metrics) LoopbackAccepted() { m.loopbackAccepted.WithLabelValues().Inc() }

// Topic is what an advisory is about.
type Topic string

// What advisories are about.
const (
	TopicConfiguration Topic = "configuration" // the configuration file is refused or partly ignored, or the flags are
	TopicRestart       Topic = "restart"       // a change of the configuration waits for a restart
	TopicNode          Topic = "node"          // the node is not as it must be: its name, its kernel, a second proxy
	TopicNetwork       Topic = "network"       // rules of others interfere with Services
)

// Topics are all of them, in the order in which they are shown.
var Topics = []Topic{TopicConfiguration, TopicRestart, TopicNode, TopicNetwork}

func (m *Metrics) setAdvisories(counts map[Topic]int) {
	for _, topic := range Topics {
		m.advisories.WithLabelValues(string(topic)).Set(float64(counts[topic]))
	}
}
