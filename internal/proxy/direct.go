package proxy

import (
	"fmt"

	"sluice/internal/base/printable"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// pathRemedies are what to do about ways to nodes that cannot be used for direct return. The others mend
// themselves, or need no mending.
var pathRemedies = map[model.PathState]string{
	model.PathOffLink:  "set --direct-return to the device on whose link they are; nodes behind a router cannot be used, and nothing is wrong without them",
	model.PathSilent:   "start their proxies with --direct-return; if they have it, see that nothing drops UDP to port 9 between the nodes",
	model.PathFiltered: "have the network let nodes send with addresses of Services: switch off the source check of the cloud, or source guard of the switch",
}

// unusedNodes returns which nodes packets are not handed to, although direct return is switched on.
func unusedNodes(r *plan.DirectReturn) (out []model.Problem) {
	if r == nil {
		return nil
	}
	for _, f := range model.Families {
		for state := range model.NumPathStates {
			remedy, known := pathRemedies[state]
			if !known {
				continue
			}
			var names []string
			for i := range r.Nodes {
				if n := &r.Nodes[i]; !n.Self && n.Path(f).Addr.IsValid() && n.Path(f).State == state {
					names = append(names, n.Name)
				}
			}
			if len(names) == 0 {
				continue
			}
			out = append(out, model.Problem{
				Object: model.Object{Kind: "Direct return"},
				Reason: fmt.Sprintf("%s (%s) not used, so that their clients are masqueraded: %s; of each, %s",
					printable.Count(len(names), "node"), f, printable.List(names, func(s string) string { return s }), plan.PathText(state)),
				Remedy: remedy,
			})
		}
	}
	return out
}
