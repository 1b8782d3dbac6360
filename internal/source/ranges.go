package source

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/model"
)

// portsAnnotation extends ports of a Service to ranges: "rtp=10000-20000,control=5000-5010". The name
// can be left out where the Service has one port.
const portsAnnotation = "sluice/ports"

// maxRanges bounds how many ranges a Service has: each takes its part of the kernel at every address.
const maxRanges = 64

const portsUsage = "use name=first-last with the name of a port in spec.ports, as in rtp=10000-20000,control=5000-5010; or first-last if the Service has one port"

// portRanges adds to ports of a Service the ranges that annotations give them. What is wrong is left
// out, and the rest is used.
func (r *Report) portRanges(annotations map[string]string, ports []model.ServicePort) {
	text, ok := annotations[portsAnnotation]
	if !ok {
		return
	}
	field := annotationField(portsAnnotation)
	for i, entry := range strings.Split(text, ",") {
		if i == maxRanges {
			r.unusable(field, "give more ports to fewer ranges, or split the Service", "a Service has at most %d ranges, the others are ignored", maxRanges)
			return
		}
		r.portRange(field, strings.TrimSpace(entry), ports)
	}
}

// portRange adds one range.
func (r *Report) portRange(field, entry string, ports []model.ServicePort) {
	name, numbers, named := strings.Cut(entry, "=")
	if !named {
		name, numbers = "", entry
	}
	added, why := parseRange(strings.TrimSpace(numbers))
	if why != "" {
		r.unusable(field, portsUsage, "%q "+why, entry)
		return
	}
	at := slices.IndexFunc(ports, func(p model.ServicePort) bool { return p.Name == strings.TrimSpace(name) })
	switch {
	case !named && len(ports) == 1:
		at = 0
	case !named:
		r.unusable(field, portsUsage, "%q does not say which of %d ports it extends", entry, len(ports))
		return
	case at < 0:
		r.unusable(field, portsUsage, "%q is for a port that the Service does not have", entry)
		return
	}
	extended := &ports[at]
	if extended.Protocol == model.SCTP {
		r.unusable(field, "use a port of TCP or UDP", "%q is for a port of SCTP, which has no ranges", entry)
		return
	}
	for _, p := range ports {
		if p.Protocol != extended.Protocol {
			continue
		}
		for _, other := range p.Ranges {
			if other.Overlaps(added) {
				r.unusable(field, "have each port in one range", "%q is ignored: it overlaps %s before it", entry, other)
				return
			}
		}
	}
	extended.Ranges = append(extended.Ranges, added)
}

// parseRange returns a range, or what is wrong with its text.
func parseRange(text string) (out model.PortRange, why string) {
	first, last, found := strings.Cut(text, "-")
	if !found {
		return out, "is not a range of ports"
	}
	numbers := [2]uint16{}
	for i, s := range []string{first, last} {
		n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
		if err != nil || n == 0 {
			return out, "has a port that is not from 1 to 65535"
		}
		numbers[i] = uint16(n)
	}
	if numbers[0] > numbers[1] {
		return out, fmt.Sprintf("ends at %d before it begins at %d", numbers[1], numbers[0])
	}
	return model.PortRange{First: numbers[0], Last: numbers[1]}, ""
}
