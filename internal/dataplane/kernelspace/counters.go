package kernelspace

import (
	"context"
	"errors"
	"sync"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/hns"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// The metrics have upstream's names and labels.
const (
	createFailures = "kubeproxy_sync_proxy_rules_winkernel_lb_create_failures_total"
	updateFailures = "kubeproxy_sync_proxy_rules_winkernel_lb_update_failures_total"
	deleteFailures = "kubeproxy_sync_proxy_rules_winkernel_lb_delete_failures_total"
)

var metrics = []dataplane.Metric{
	{Name: createFailures, Help: "Load balancers that HNS refused to create.", Labels: labels, Counter: true},
	{Name: updateFailures, Help: "Load balancers that HNS refused to change.", Labels: labels, Counter: true},
	{Name: deleteFailures, Help: "Load balancers that HNS refused to delete.", Labels: labels, Counter: true},
}

var labels = []string{"ip_family", "lb_type", "error"}

// types are the kinds of frontends as metrics call them.
var types = map[plan.Kind]string{plan.ClusterIP: "clusterip", plan.NodePort: "nodeport", plan.ExternalIP: "externalip", plan.LoadBalancerIP: "ingressip"}

const typeHealthCheck = "healthcheck"

// invalidIP is the code for an address that HNS does not take.
const invalidIP hns.Code = 0x803b001e

// failure is what failures are counted by.
type failure struct {
	metric, label, reason string
	family                model.Family
}

// failures counts them.
type failures struct {
	mu     sync.Mutex
	counts map[failure]uint64
}

func (f *failures) add(metric string, b *balancer, err error) {
	reason := "other"
	switch {
	case hns.IsTaken(err):
		reason = "port_already_exists"
	case errors.Is(err, hns.NetworkNotFound):
		reason = "network_not_found"
	case errors.Is(err, hns.NotImplemented):
		reason = "not_implemented"
	case errors.Is(err, invalidIP):
		reason = "invalid_ip"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = map[failure]uint64{}
	}
	f.counts[failure{metric, b.label, reason, b.at.Family()}]++
}

// Count implements dataplane.Counter.
func (d *Dataplane) Count(_ context.Context, families []model.Family, add func(metric string, value float64, labels ...string)) {
	d.failures.mu.Lock()
	defer d.failures.mu.Unlock()
	for f, n := range d.failures.counts {
		for _, family := range families {
			if f.family == family {
				add(f.metric, float64(n), family.String(), f.label, f.reason)
			}
		}
	}
}
