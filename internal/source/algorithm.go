package source

import (
	"strconv"

	"sluice/internal/model"
)

// algorithmAnnotation is an annotation of Services that chooses an algorithm.
type algorithmAnnotation struct {
	key   string
	words map[string]model.Algorithm
	usage string
}

// algorithmAnnotations are ours, and those of other proxies that mean the same. If
// they contradict each other, the first one counts.
var algorithmAnnotations = []algorithmAnnotation{
	{ownAlgorithm, map[string]model.Algorithm{
		"random": model.Random, "round-robin": model.RoundRobin, "source-hash": model.SourceHash,
		"maglev": model.Maglev, "least-connections": model.LeastConnections,
	}, "use random, round-robin, source-hash, maglev or least-connections"},
	{"kube-router.io/service.scheduler", map[string]model.Algorithm{
		"rr": model.RoundRobin, "wrr": model.RoundRobin, "lc": model.LeastConnections, "wlc": model.LeastConnections,
		"sh": model.SourceHash, "mh": model.Maglev,
	}, "use rr, lc, sh or mh, or sluice/algorithm instead"},
	{"service.cilium.io/lb-algorithm", map[string]model.Algorithm{
		"random": model.Random, "maglev": model.Maglev,
	}, "use random or maglev, or sluice/algorithm instead"},
}

// weightAnnotations set the weight of all endpoints of an EndpointSlice.
var weightAnnotations = []string{ownWeight, "service.cilium.io/weight"}

// algorithm returns the algorithm that annotations of a Service choose, and whether
// they choose one.
func (r *Report) algorithm(annotations map[string]string) (chosen model.Algorithm, ok bool) {
	by := ""
	for _, a := range algorithmAnnotations {
		word, ok := annotations[a.key]
		if !ok {
			continue
		}
		algorithm, known := a.words[word]
		switch {
		case !known:
			r.unusable(annotationField(a.key), a.usage, "%q is not an algorithm", word)
		case by == "":
			chosen, by = algorithm, a.key
		case algorithm != chosen:
			r.contradiction(a.key, word, by)
		}
	}
	return chosen, by != ""
}

// ejectAnnotation has endpoints of a Service that do not answer left out for a while.
const ejectAnnotation = "sluice/eject"

// eject returns what annotations of a Service say about endpoints that do not answer, nil for nothing.
func (r *Report) eject(annotations map[string]string) *bool {
	word, ok := annotations[ejectAnnotation]
	if !ok {
		return nil
	}
	if word != "true" && word != "false" {
		r.unusable(annotationField(ejectAnnotation), "use true or false", "%q is neither true nor false", word)
		return nil
	}
	yes := word == "true"
	return &yes
}

// weight returns the weight that annotations of an EndpointSlice give, nil for
// none.
func (r *Report) weight(annotations map[string]string) (chosen *uint16) {
	by := ""
	for _, key := range weightAnnotations {
		text, ok := annotations[key]
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 16)
		weight := uint16(n)
		switch {
		case err != nil:
			r.unusable(annotationField(key), "use a number from 0 to 65535", "%q is not a weight", text)
		case chosen == nil:
			chosen, by = &weight, key
		case weight != *chosen:
			r.contradiction(key, text, by)
		}
	}
	return chosen
}

func (r *Report) contradiction(key, value, by string) {
	r.unusable(annotationField(key), "remove one of the two", "%q is ignored: the annotation %s says otherwise", value, by)
}
