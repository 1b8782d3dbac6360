package source

// rangesAnnotation says which addresses of a Service its source ranges are for.
const rangesAnnotation = "sluice/source-ranges-apply-to"

// passAnnotation has packets to external addresses without an endpoint left alone.
const passAnnotation = "service.kubernetes.io/no-reject-on-no-endpoints"

// passThrough returns whether annotations of a Service leave packets alone for which it has no endpoint.
func (r *Report) passThrough(annotations map[string]string) bool {
	word, ok := annotations[passAnnotation]
	if ok && word != "true" && word != "false" {
		r.unusable(annotationField(passAnnotation), "use true or false", "%q is neither true nor false", word)
	}
	return word == "true"
}

// filterAll returns whether annotations of a Service, which has source ranges or not, have these
// restrict the clients of all its external addresses.
func (r *Report) filterAll(annotations map[string]string, filtered bool) bool {
	word, ok := annotations[rangesAnnotation]
	field := annotationField(rangesAnnotation)
	switch {
	case !ok || word == "load-balancer": // as without it
		return false
	case word != "all":
		r.unusable(field, "use all or load-balancer", "%q is neither all nor load-balancer", word)
		return false
	case !filtered:
		r.unusable(field, "set spec.loadBalancerSourceRanges of a Service of type LoadBalancer, or remove the annotation",
			"there are no source ranges: everybody may connect")
		return false
	}
	return true
}
