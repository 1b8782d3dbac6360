package source

import (
	"slices"
	"strings"

	"sluice/internal/base/spelling"
)

// ownPrefix is that of annotations which nobody else has. Others may ask for the same as some of them.
const (
	ownPrefix     = "sluice/"
	ownAlgorithm  = ownPrefix + "algorithm"
	ownForwarding = ownPrefix + "forwarding"
	ownWeight     = ownPrefix + "weight"
)

// The annotations of each kind of object with this prefix.
var (
	serviceAnnotations = []string{ownAlgorithm, ejectAnnotation, ownForwarding, portsAnnotation, rangesAnnotation}
	sliceAnnotations   = []string{ownWeight}
)

func annotationField(key string) string { return "metadata.annotations[" + key + "]" }

// unknownAnnotations reports annotations that look like ours and mean nothing to an object of a kind: who misspells
// one would not notice.
func (r *Report) unknownAnnotations(annotations map[string]string, kind string, known []string) {
	var unknown []string
	for key := range annotations {
		if strings.HasPrefix(strings.ToLower(key), ownPrefix) && !slices.Contains(known, key) {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	for _, key := range unknown {
		remedy := "use one of " + strings.Join(known, ", ") + ", or remove it"
		if meant := spelling.Nearest(key, known); meant != "" {
			remedy = "did you mean " + meant + "?"
		}
		r.unusable(annotationField(key), remedy, "it means nothing: %s has no such annotation", kind)
	}
}
