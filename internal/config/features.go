package config

import (
	_ "embed"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/component-base/featuregate"
)

// AllowServiceExternalIPs is the feature gate for the externalIPs of Services.
const AllowServiceExternalIPs featuregate.Feature = "AllowServiceExternalIPs"

const (
	restartLogGate     = "logging is set up once"
	restartMetricsGate = "metrics are registered once"
	restartPagesGate   = "the pages of the metrics server are set up once"
)

// effectiveGates are the feature gates that do something here. The others are
// known, can be set and do nothing. The text says why a change needs a new
// process, if it does.
var effectiveGates = map[featuregate.Feature]string{
	AllowServiceExternalIPs: "",
	LocalhostNodePorts:      "",
	"ComponentFlagz":        restartPagesGate,
	"ComponentStatusz":      restartPagesGate,
	"ContextualLogging":     restartLogGate,
	"LoggingAlphaOptions":   restartLogGate,
	"LoggingBetaOptions":    restartLogGate,
	"NativeHistograms":      restartMetricsGate,
}

// allGates are those that set all gates of a stage.
var allGates = []featuregate.Feature{"AllAlpha", "AllBeta"}

func gatesThatMatter() []string {
	var names []string
	for name := range effectiveGates {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

// gatesText is what upstream's kube-proxy knows, as the generator in
// test/cluster/upstream wrote it. Upstream refuses other names, so that a misspelt
// one does not go unnoticed, and so does this one.
//
//go:embed gates.txt
var gatesText string

// removedText is what earlier releases knew. Upstream refuses these too, but a
// command line that an older kube-proxy ran with is no reason not to start.
//
//go:embed gates_removed.txt
var removedText string

// oldestRelease is the first whose feature gates are ordinary: 1.31.
const oldestRelease = 31

// removedGates reads removedText: the minor version of the last release of 1 that
// had a gate.
var removedGates = sync.OnceValue(func() map[featuregate.Feature]int {
	gates := map[featuregate.Feature]int{}
	for words := range gateLines(removedText) {
		minor, _ := strconv.Atoi(strings.TrimPrefix(words[1], "1."))
		gates[featuregate.Feature(words[0])] = minor
	}
	return gates
})

// gateLines are the words of the lines that are no comments.
func gateLines(text string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(text) {
			if words := strings.Fields(line); len(words) > 1 && !strings.HasPrefix(line, "#") && !yield(words) {
				return
			}
		}
	}
}

// knownGates reads gatesText.
var knownGates = sync.OnceValue(func() gateTable {
	table := gateTable{specs: map[featuregate.Feature]featuregate.FeatureSpec{}, needs: map[featuregate.Feature][]featuregate.Feature{}}
	for words := range gateLines(gatesText) {
		table.add(words)
	}
	return table
})

type gateTable struct {
	specs map[featuregate.Feature]featuregate.FeatureSpec
	needs map[featuregate.Feature][]featuregate.Feature
}

// add takes a line: name, stage, default, and what else there is to say.
func (t gateTable) add(words []string) {
	name := featuregate.Feature(words[0])
	spec := featuregate.FeatureSpec{Default: words[2] == "true"}
	switch words[1] {
	case "alpha":
		spec.PreRelease = featuregate.Alpha
	case "beta":
		spec.PreRelease = featuregate.Beta
	case "deprecated":
		spec.PreRelease = featuregate.Deprecated
	}
	for _, word := range words[3:] {
		if word == "locked" {
			spec.LockToDefault = true
		}
		if names, ok := strings.CutPrefix(word, "needs="); ok {
			for need := range strings.SplitSeq(names, ",") {
				t.needs[name] = append(t.needs[name], featuregate.Feature(need))
			}
		}
	}
	t.specs[name] = spec
}

// newGates returns all feature gates with their defaults.
func newGates() (featuregate.MutableVersionedFeatureGate, error) {
	gates := featuregate.NewFeatureGate()
	if err := gates.Add(knownGates().specs); err != nil {
		return nil, err
	}
	if err := gates.AddDependencies(knownGates().needs); err != nil {
		return nil, err
	}
	return gates, nil
}

// features sets the feature gates, and tells of each that cannot be set or
// that does nothing.
func features(chosen map[string]bool, n *notes) featuregate.MutableVersionedFeatureGate {
	gates, err := newGates()
	if err != nil {
		n.fail("featureGates", err.Error(), "report this: the feature gates that are built in do not fit together")
		return featuregate.NewFeatureGate()
	}
	sound := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		if checkGate(name, chosen[name], n) {
			sound[name] = chosen[name]
		}
	}
	setter := gates.(featuregate.MutableFeatureGateWithLogger)
	if err := setter.SetFromMapWithLogger(logr.Discard(), sound); err != nil {
		n.fail("featureGates", err.Error(), "set the gates that are named together to values that go together")
	}
	return gates
}

// checkGate tells whether a feature gate can be set, and tells of it if it cannot
// or if that does nothing.
func checkGate(name string, value bool, n *notes) bool {
	gate, field := featuregate.Feature(name), "featureGates."+name
	if slices.Contains(allGates, gate) {
		return true
	}
	spec, known := knownGates().specs[gate]
	last, removed := removedGates()[gate]
	switch {
	case removed && last < oldestRelease:
		n.warn(field, fmt.Sprintf("this feature gate has no effect: Kubernetes 1.%d was the last release that had it", last), leaveGateOut)
		return false
	case removed:
		n.note(field, fmt.Sprintf("this feature gate has no effect: Kubernetes 1.%d was the last release that had it", last), leaveGateOut)
		return false
	case !known:
		n.fail(field, "there is no such feature gate in Kubernetes 1.37, nor was there in an earlier release",
			"correct the name, or leave it out of --feature-gates")
		return false
	case spec.LockToDefault && value != spec.Default:
		n.fail(field, fmt.Sprintf("this feature gate is locked to %t", spec.Default), leaveGateOut)
		return false
	}
	if _, effective := effectiveGates[gate]; !effective {
		n.note(field, "this feature gate has no effect on this proxy", leaveGateOut)
	}
	return true
}

const leaveGateOut = "leave it out of --feature-gates"
