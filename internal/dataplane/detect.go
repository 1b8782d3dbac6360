package dataplane

import (
	"maps"
	"slices"
	"strings"

	"sluice/internal/model"
)

// Inventory is what there is on a node, by name.
type Inventory struct {
	// Tables are the tables of nftables, such as "ip nat", and those of iptables-legacy, such as
	// "iptables-legacy nat", with the names of their chains.
	Tables map[string][]string
	Links  []string
}

// Detection is what was found of the kube-proxies of a mode, this one or upstream's.
type Detection struct {
	// Traces are what they are recognised by; there is no such kube-proxy without any.
	Traces []string
	// Differences are what changes when another mode takes over. Those with a remedy should be
	// decided before.
	Differences []model.Problem
}

// TableNames returns the names of the tables, sorted.
func (i *Inventory) TableNames() []string { return slices.Sorted(maps.Keys(i.Tables)) }

// HasChain reports whether a table has such a chain.
func (i *Inventory) HasChain(is func(chain string) bool) bool {
	for _, chains := range i.Tables {
		if slices.ContainsFunc(chains, is) {
			return true
		}
	}
	return false
}

// ChainTraces names a chain in each table of a name that has it.
func (i *Inventory) ChainTraces(table, chain string) (traces []string) {
	for _, full := range i.TableNames() {
		if strings.HasSuffix(full, " "+table) && slices.Contains(i.Tables[full], chain) {
			traces = append(traces, "chain "+chain+" in table "+full)
		}
	}
	return traces
}
