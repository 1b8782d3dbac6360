package fakehns

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Summary describes endpoints and load balancers without their IDs, a line each and sorted, so that
// what two clients leave can be compared.
func (s State) Summary() string {
	address := map[string]string{}
	var lines []string
	for _, e := range s.Endpoints {
		kind := "local"
		if remote(e) {
			kind = "remote"
		}
		at := strings.Join(addresses(e), ",")
		address[key(text(e, "ID"))] = at
		line := "endpoint " + kind + " " + at
		if p := provider(e); p != "" {
			line += " at " + p
		}
		lines = append(lines, line)
	}
	for _, b := range s.LoadBalancers {
		var to []string
		for _, id := range texts(b["HostComputeEndpoints"]) {
			to = append(to, cmp.Or(address[key(id)], "?"))
		}
		slices.Sort(to)
		for _, m := range documents(b["PortMappings"]) {
			lines = append(lines, fmt.Sprintf("balancer %s protocol %d port %d to %s port %d flags %d mapping %d distribution %d source %s",
				cmp.Or(strings.Join(texts(b["FrontendVIPs"]), ","), "*"), number(m, "Protocol"), number(m, "ExternalPort"),
				strings.Join(to, " "), number(m, "InternalPort"), number(b, "Flags"), number(m, "Flags"), number(m, "DistributionType"), cmp.Or(text(b, "SourceVIP"), "-")))
		}
	}
	slices.Sort(lines)
	return strings.Join(append(lines, ""), "\n")
}

// Balancers are the load balancers as JSON, sorted, so that those of two clients can be compared: without IDs
// and what is empty or zero, and with addresses in place of the IDs of endpoints.
func (s State) Balancers() []string {
	endpoint := map[string]string{}
	for _, e := range s.Endpoints {
		kind := "local"
		if remote(e) {
			kind = "remote"
		}
		endpoint[key(text(e, "ID"))] = strings.TrimSpace(kind + " " + strings.Join(addresses(e), ",") + " " + provider(e))
	}
	lines := []string{}
	for _, b := range s.LoadBalancers {
		d := maps.Clone(b)
		delete(d, "ID")
		var to []any
		for _, id := range texts(b["HostComputeEndpoints"]) {
			to = append(to, cmp.Or(endpoint[key(id)], "none"))
		}
		slices.SortFunc(to, func(a, b any) int { return cmp.Compare(a.(string), b.(string)) })
		d["HostComputeEndpoints"] = to
		lines = append(lines, marshal(withoutZero(d)))
	}
	slices.Sort(lines)
	return lines
}

// withoutZero returns a value without what some clients leave out.
func withoutZero(v any) any {
	switch v := v.(type) {
	case Document:
		out := Document{}
		for field, value := range v {
			if value = withoutZero(value); value != nil {
				out[field] = value
			}
		}
		return out
	case []any:
		var out []any
		for _, value := range v {
			out = append(out, withoutZero(value))
		}
		if out == nil {
			return nil
		}
		return out
	case string:
		if v == "" {
			return nil
		}
	case float64:
		if v == 0 {
			return nil
		}
	}
	return v
}
