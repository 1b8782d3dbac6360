package nodeproblem

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// hit are the paths that something affects, and how to let their packets pass.
type hit struct {
	paths    []Path
	how      fate
	remedies []remedy
}

func (h *hit) add(p Path, r remedy) {
	h.paths = append(h.paths, p)
	if !slices.Contains(h.remedies, r) {
		h.remedies = append(h.remedies, r)
	}
}

// text says which connections are affected.
func (h *hit) text() string {
	var families, whose []string
	for _, f := range model.Families {
		if slices.ContainsFunc(h.paths, func(p Path) bool { return p.Family == f }) {
			families = append(families, f.String())
		}
	}
	for _, from := range clients {
		if slices.ContainsFunc(h.paths, func(p Path) bool { return p.From == from }) {
			whose = append(whose, map[plan.Client]string{plan.PodClient: "pods", plan.OutsideClient: "clients outside", plan.NodeClient: "this node"}[from])
		}
	}
	text := strings.Join(families, " and ") + " connections of " + strings.Join(whose, " and ")
	if !slices.ContainsFunc(h.paths, func(p Path) bool { return !p.Own }) {
		text += " to endpoints that have the node's own address"
	}
	return text
}

// advise finds the chains that drop packets to Services, or may.
func advise(chains []chain, paths map[Path]struct{}, idle func(string) bool) (out []model.Problem) {
	for i := range chains {
		c := &chains[i]
		var sure, doubtful hit
		for _, p := range sorted(paths) {
			for _, l := range p.legs() {
				if !c.meets(p, l) {
					continue
				}
				l.packet.idle = idle
				f, certain := c.fate(l.packet)
				switch {
				case f == passes:
				case certain:
					sure.how = f
					sure.add(p, l.accept)
				case l.doubted:
					doubtful.how = f
					doubtful.add(p, l.accept)
				}
			}
		}
		if len(sure.paths) > 0 {
			out = append(out, c.problem(&sure, "and no rule in it accepts them: %s to Services get no answer"))
		} else if len(doubtful.paths) > 0 {
			out = append(out, c.problem(&doubtful, "%s to Services get no answer, unless another of its rules accepts them"))
		}
	}
	return out
}

func (c *chain) problem(h *hit, format string) model.Problem {
	how := "its policy is " + c.word("drop")
	if h.how == ruleDrops {
		how = "a rule in it drops everything"
	}
	p := model.Problem{Object: model.Object{Kind: c.command}, Field: "table " + c.table + ", chain " + c.name, Remedy: c.remedy(h.remedies)}
	p.Reason = how + ", " + fmt.Sprintf(format, h.text())
	return p
}

func (c *chain) word(verdict string) string {
	if c.command == "nft" {
		return verdict
	}
	return strings.ToUpper(verdict)
}

func (c *chain) String() string {
	text := "table " + c.table + ", chain " + c.name
	if c.command != "nft" {
		text = c.command + ", " + text
	}
	return text
}

// remedy returns the commands that let packets pass.
func (c *chain) remedy(accept []remedy) string {
	if slices.Contains(accept, acceptNew) || c.hook == output && c.priority <= dstnat { // where nothing is translated yet
		accept = []remedy{acceptNew}
	}
	var commands []string
	for _, r := range accept {
		switch {
		case c.command == "nft":
			commands = append(commands, fmt.Sprintf("nft insert rule %s %s %s accept", c.table, c.name, r.nft))
		case c.table == "filter":
			commands = append(commands, fmt.Sprintf("%s -I %s %s -j ACCEPT", c.command, c.name, r.iptables))
		default:
			commands = append(commands, fmt.Sprintf("%s -t %s -I %s %s -j ACCEPT", c.command, c.table, c.name, r.iptables))
		}
	}
	return "run " + strings.Join(commands, " && ") + ", and make it permanent in what loads the rules"
}

// meets reports whether a chain sees the packets of a leg of a path.
func (c *chain) meets(p Path, l leg) bool {
	return c.hook == l.hook && slices.Contains(c.families, p.Family)
}

func sorted(paths map[Path]struct{}) []Path {
	return slices.SortedFunc(maps.Keys(paths), func(a, b Path) int {
		return cmp.Or(int(a.Family)-int(b.Family), int(a.From)-int(b.From), int(a.Via)-int(b.Via), order(a.Own)-order(b.Own), order(a.Masqueraded)-order(b.Masqueraded))
	})
}

func order(b bool) int {
	if b {
		return 1
	}
	return 0
}

// What takes long to find out is found out again only if something has changed, and not before
// costFactor times as long has passed: rarely in large clusters, but often enough that warnings
// and verdicts follow.
const (
	costFactor = 200
	maxPause   = 3 * time.Second
)

// Fit finds out whether the configuration fits the cluster. That may need a walk over all
// Services, during which planning waits.
type Fit struct {
	Clock clock.PassiveClock

	mu                  sync.Mutex
	cfg                 *plan.Config
	version             uint64
	at                  time.Time
	cost                time.Duration
	node, configuration []model.Problem
}

// Look returns what is wrong with the name of the node, and with the configuration. Neither a
// Config nor a version of a State is used for different things.
func (f *Fit) Look(cfg *plan.Config, state *model.State, version uint64) (node, configuration []model.Problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	start := f.Clock.Now()
	if f.cfg != cfg || f.version != version && start.Sub(f.at) >= min(costFactor*f.cost, maxPause) {
		f.node, f.configuration = NodeName(cfg, state), ClusterCIDR(cfg, state)
		f.cfg, f.version, f.at = cfg, version, f.Clock.Now()
		f.cost = f.at.Sub(start)
	}
	return f.node, f.configuration
}
