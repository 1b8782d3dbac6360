package kernelspace

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/go-logr/logr/testr"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/kernel/hns"
	"sluice/internal/kernel/hns/fakehns"
	"sluice/internal/model"
	"sluice/internal/oracle/randomworld"
	"sluice/internal/plan"
)

// node is a node with Windows: HNS with a network, in which pods of this node have endpoints.
type node struct {
	*testing.T
	*fakehns.HNS
	settings dataplane.Windows
}

const (
	releaseModifies = "15.5"
	releaseReplaces = "14.0"
)

func newNode(t *testing.T, networkType, release string) *node {
	n := &node{T: t, HNS: &fakehns.HNS{}}
	if _, err := fmt.Sscanf(release, "%d.%d", &n.Version.Major, &n.Version.Minor); err != nil {
		t.Fatal(err)
	}
	n.settings = dataplane.Windows{Network: "cbr0", RootEndpoint: "cbr0-root"}
	if networkType == hns.Overlay {
		n.settings.SourceVIP = netip.MustParseAddr("10.1.1.250")
	}
	n.addNetwork(networkType)
	return n
}

// addNetwork makes the network, as a CNI plugin does, with endpoints of the node and its pods.
func (n *node) addNetwork(networkType string) {
	n.Helper()
	network := fakehns.Document{"Name": n.settings.Network, "Type": networkType, "Ipams": []any{fakehns.Document{"Subnets": []any{
		fakehns.Document{"IpAddressPrefix": "10.1.1.0/24"}, fakehns.Document{"IpAddressPrefix": "fd01:0:0:1::/64"},
	}}}, "Policies": []any{route("10.1.2.0/24", "192.0.2.20")}}
	n.create(hns.Networks, network)
	n.addEndpoint("cbr0-root", "10.1.1.200", 0)
	for _, pod := range randomworld.Example().LocalPods {
		n.addEndpoint("pod", pod.Addr.String(), 0)
	}
}

// route is the policy of a network that the pods of a subnet are behind the address of a node.
func route(subnet, node string) fakehns.Document {
	return fakehns.Document{"Type": "RemoteSubnetRoute", "Settings": fakehns.Document{"DestinationPrefix": subnet, "ProviderAddress": node}}
}

// addRoute adds a route to the network, as a CNI plugin does when a node joins.
func (n *node) addRoute(subnet, node string) {
	network := n.State().Networks[0]
	network["Policies"] = append(network["Policies"].([]any), route(subnet, node))
}

// reverseRoutes has HNS list the routes in another order.
func (n *node) reverseRoutes() { slices.Reverse(n.State().Networks[0]["Policies"].([]any)) }

// create creates an object, in the network if it is an endpoint.
func (n *node) create(kind hns.Kind, d fakehns.Document) {
	n.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		n.Fatal(err)
	}
	do := func(c fakehns.Call) hns.Handle {
		n.Helper()
		code, handle, _ := n.Do(c)
		if code != 0 {
			n.Fatalf("%s %s: %v", c.Function, text, code)
		}
		return handle
	}
	c := fakehns.Call{Function: "HcnCreate" + string(kind), Strings: []string{string(text)}}
	if kind == hns.Endpoints {
		c.Handle = do(fakehns.Call{Function: "HcnOpenNetwork", ID: n.State().Networks[0]["ID"].(string)})
		defer do(fakehns.Call{Function: "HcnCloseNetwork", Handle: c.Handle})
	}
	do(fakehns.Call{Function: "HcnClose" + string(kind), Handle: do(c)})
}

func (n *node) addEndpoint(name, ip string, flags hns.EndpointFlag) string {
	n.Helper()
	n.create(hns.Endpoints, fakehns.Document{"Name": name, "Flags": flags, "IpConfigurations": []any{fakehns.Document{"IpAddress": ip}}})
	all := n.State().Endpoints
	return all[len(all)-1]["ID"].(string)
}

// addBalancer makes a load balancer of another program.
func (n *node) addBalancer(vip string, port int, endpoint string) {
	n.Helper()
	n.create(hns.LoadBalancers, fakehns.Document{"FrontendVIPs": []string{vip}, "HostComputeEndpoints": []string{endpoint},
		"PortMappings": []any{fakehns.Document{"Protocol": 6, "InternalPort": 8080, "ExternalPort": port}}})
}

// open opens a dataplane, as a new process does.
func (n *node) open() *Dataplane {
	return New(Options{Logger: testr.NewWithOptions(n.T, testr.Options{Verbosity: -1}), Windows: n.settings, Service: n.ABI(),
		InterfaceOf: func(netip.Addr) (string, error) { return "00-15-5D-00-00-10", nil }})
}

// sound fails the test if a client did what none should do.
func (n *node) sound() {
	n.Helper()
	s := n.State()
	if len(s.Violations) > 0 {
		n.Errorf("violations: %q", s.Violations)
	}
	if s.OpenHandles > 0 {
		n.Errorf("%d handles are open", s.OpenHandles)
	}
}

// settled fails the test unless a dataplane, and one that was just opened, find all as it should be.
func (n *node) settled(d *Dataplane, desired *plan.Desired) {
	n.Helper()
	if ok, err := d.Verify(n.Context()); !ok || err != nil {
		n.Errorf("Verify says %t, %v", ok, err)
	}
	if r := n.open().Reconcile(n.Context(), desired); r.Err != nil || r.Transactions != 0 {
		n.Errorf("a new process makes %d changes, %v", r.Transactions, r.Err)
	}
	n.sound()
}

// web is a frontend with endpoints.
func web(at string, endpoints ...string) *plan.Frontend {
	f := &plan.Frontend{Key: dataplanetest.Key(at, model.TCP), Masquerade: plan.MasqueradeUnknown, Route: plan.Route{Endpoints: dataplanetest.Endpoints(endpoints...)}}
	for i := range f.Route.Endpoints {
		e := &f.Route.Endpoints[i]
		e.Local = netip.MustParsePrefix("10.1.1.0/24").Contains(e.Addr())
	}
	return f
}

func desired(all ...*plan.Frontend) *plan.Desired {
	d := &plan.Desired{Frontends: map[plan.Key]*plan.Frontend{}}
	d.Settings.PrimaryIPs = []netip.Addr{netip.MustParseAddr("192.0.2.10")}
	for _, f := range all {
		d.Frontends[f.Key] = f
	}
	return d
}

func change(set ...*plan.Frontend) *plan.Change { return &plan.Change{Set: set} }
