package telemetry

import (
	"sluice/internal/dataplane"
	"sluice/internal/model"
)

// labelProtocol is the label of the transport protocol.
const labelProtocol = "protocol"

// defineLoopback defines the metrics of node ports on loopback addresses.
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
