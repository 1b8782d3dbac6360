//go:build linux

package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
)

// Lab is a running lab. Its methods may be used by several goroutines.
type Lab struct {
	hosts  map[string]*Host
	order  []*Host
	prefix string

	world   *witness
	mutex   sync.Mutex
	closers []func() error // run in reverse by Close
}

// New builds a lab, which takes about a tenth of a second. Several labs can run
// side by side. The caller must Close it.
func New() (*Lab, error) {
	l := empty(plannedHosts())
	return l.build(l.makeHosts, l.makeWire, l.makePods, l.awaitLinks, l.startEcho, l.startWitness)
}

// empty returns a lab with hosts that do not exist yet.
func empty(hosts []*Host) *Lab {
	return &Lab{
		hosts: map[string]*Host{}, order: hosts,
		prefix: fmt.Sprintf("%s%d-%06x-", namePrefix, os.Getpid(), rand.IntN(1<<24)),
	}
}

func (l *Lab) build(steps ...func() error) (*Lab, error) {
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, errors.Join(fmt.Errorf("build lab: %w", err), l.Close())
		}
	}
	return l, nil
}

// Close stops everything that runs in the lab and removes it.
func (l *Lab) Close() error {
	l.mutex.Lock()
	closers := l.closers
	l.closers = nil
	l.mutex.Unlock()
	var errs []error
	for i := len(closers) - 1; i >= 0; i-- {
		errs = append(errs, closers[i]())
	}
	return errors.Join(errs...)
}

// onClose makes Close run f, before everything registered earlier.
func (l *Lab) onClose(f func() error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.closers = append(l.closers, f)
}

// TempDir makes a directory that is removed with the lab.
func (l *Lab) TempDir() (string, error) {
	dir, err := os.MkdirTemp("", l.prefix)
	if err == nil {
		l.onClose(func() error { return os.RemoveAll(dir) })
	}
	return dir, err
}

// Host returns a host by its name.
func (l *Lab) Host(name string) (*Host, error) {
	h, ok := l.hosts[name]
	if !ok {
		return nil, fmt.Errorf("the lab has no host %q", name)
	}
	return h, nil
}

// Hosts returns all hosts, in the same order for every lab.
func (l *Lab) Hosts() []*Host { return l.order }

// Owner returns the host that an address belongs to, nil if there is none.
func (l *Lab) Owner(a netip.Addr) *Host {
	for _, h := range l.order {
		if h.Owns(a.Unmap()) {
			return h
		}
	}
	return nil
}

// makeHosts makes the namespaces concurrently: most of the time is spent waiting
// for the kernel.
func (l *Lab) makeHosts() error {
	errs := make([]error, len(l.order))
	var all sync.WaitGroup
	for i, h := range l.order {
		l.hosts[h.Name] = h
		all.Go(func() {
			if h.Namespace, errs[i] = newNamespace(l.prefix + h.Name); errs[i] != nil {
				return
			}
			l.onClose(h.Namespace.close)
			errs[i] = h.sysctls(sysctlsOf(h))
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// sysctlsOf makes addresses usable immediately, keeps routes as configured (node1
// and the world share a wire, so node1 would redirect clients), and does not limit
// ICMP errors, so that probes depend on the rules only. Nodes remember UDP flows for
// longer than a busy machine makes the steps of a test.
func sysctlsOf(h *Host) [][2]string {
	settings := [][2]string{
		{"ipv6/conf/default/accept_dad", "0"},
		{"ipv6/conf/default/accept_ra", "0"},
		{"ipv6/conf/default/addr_gen_mode", "1"},
		{"ipv4/conf/all/rp_filter", "0"},
		{"ipv4/conf/default/rp_filter", "0"},
		{"ipv4/conf/all/accept_redirects", "0"},
		{"ipv4/conf/default/accept_redirects", "0"},
		{"ipv6/conf/all/accept_redirects", "0"},
		{"ipv6/conf/default/accept_redirects", "0"},
		{"ipv4/icmp_ratemask", "0"},
		{"ipv6/icmp/ratelimit", "0"},
		{"ipv6/icmp/ratemask", ""},
	}
	if h.Node == h.Name || h.Name == router {
		settings = append(settings, [][2]string{
			{"ipv4/ip_forward", "1"},
			{"ipv6/conf/all/forwarding", "1"},
			{"netfilter/nf_conntrack_udp_timeout", "180"},
			{"netfilter/nf_conntrack_udp_timeout_stream", "180"},
		}...)
	}
	if h.Name == "node1" || h.Name == "world" || h.Name == "switch" { // they have bridges
		settings = append(settings, [][2]string{
			{"bridge/bridge-nf-call-iptables", "0"},
			{"bridge/bridge-nf-call-ip6tables", "0"},
		}...)
	}
	return settings
}
