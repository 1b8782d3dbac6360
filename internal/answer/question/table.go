package question

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sluice/internal/answer/diff"
	"sluice/internal/answer/explain"
	"sluice/internal/answer/listing"
	"sluice/internal/answer/status"
	"sluice/internal/base/printable"
	"sluice/internal/observe/history"
	"sluice/internal/observe/verdict"
	"sluice/internal/source/manifest"
)

// Names returns the names of all questions, in words.
func Names() string {
	first := []string{Explain.Name, Status.Name, Services.Name, Events.Name}
	return strings.Join(first, ", ") + " and " + Diff.Name
}

// Explain asks what happens to a packet.
var Explain = &Question[explain.Question, explain.Reply]{
	Name: "explain", Argument: "to", Field: "answers", Write: explain.Write,
	Flags: func(flags *pflag.FlagSet, q *explain.Question) {
		flags.StringVar(&q.To, "to", "", "Where the packet goes to.")
		flags.StringVar(&q.From, "from", "",
			"Who sends the packet: an IP, or pod, node or outside for any of that kind. By default any pod.")
		flags.BoolVar(&q.Try, "try", false,
			"Also open a connection, and compare what happens with what should: from this node, or from the network "+
				"namespace that has the address of --from.")
		flags.StringVar(&q.NetNS, "netns", "",
			"With --try, the network namespace to connect from: its name, its path or the number of a process in it.")
		flags.StringVar(&q.Interface, "interface", "",
			"Interface through which the packet arrives. By default the one of the route to the IP of --from.")
	},
	IsNo: func(_ *explain.Question, r *explain.Reply) bool { return !r.Flows },
}

// None is the query of a question that has none.
type None struct{}

// Status asks for the state of the proxy.
var Status = &Question[None, status.Report]{
	Name: "status", Field: "version", Write: status.Write,
	Flags: func(*pflag.FlagSet, *None) {},
	IsNo: func(_ *None, r *status.Report) bool {
		return r.Word != verdict.Serving || !r.Healthy || r.Frontends.Failed > 0
	},
}

// maxTopTime is the longest time over which rates are measured: an answer must not take
// longer than the control socket allows.
const maxTopTime = 20 * time.Second

// Services asks for the Services of the node.
var Services = &Question[listing.Query, listing.List]{
	Name: "services", Field: "services", Write: listing.Write,
	Flags: func(flags *pflag.FlagSet, q *listing.Query) {
		flags.StringVarP(&q.Namespace, "namespace", "n", "", "Only Services in this namespace.")
		flags.BoolVar(&q.Failing, "failing", false,
			"Only Services that do not work, work in part (except because of a traffic policy Local), or are "+
				"partly ignored. The exit code is 1 if there are any.")
		flags.BoolVar(&q.Top, "top", false,
			"Measure new and refused connections per second, and list the busiest Services first. Not in modes that do "+
				"not count connections.")
		flags.DurationVar(&q.Interval.Duration, "interval", listing.DefaultInterval, "How long to measure, with --top.")
		flags.IntVar(&q.Limit, "limit", 0, "How many Services to list at most; 0 for all.")
		// The names of earlier builds, for one release.
		flags.DurationVar(&q.Interval.Duration, "over", listing.DefaultInterval, "")
		flags.IntVar(&q.Limit, "most", 0, "")
		_ = flags.MarkDeprecated("over", "use --interval") // it exists
		_ = flags.MarkDeprecated("most", "use --limit")    // it exists
	},
	Check: func(q *listing.Query) error {
		if q.Interval.Duration < 0 || q.Interval.Duration > maxTopTime {
			return fmt.Errorf("--interval: %v is not possible (use up to %v)", q.Interval.Duration, maxTopTime)
		}
		return nil
	},
	IsNo: func(q *listing.Query, l *listing.List) bool {
		return q.Failing && len(l.Services) > 0 || !l.Proxy.Word.Ready()
	},
}

// EventList is the answer to a query of Events. The names of its fields in JSON are an
// interface and never change.
type EventList struct {
	// Started is when the proxy started, which numbers its Events anew.
	Started time.Time `json:"started"`
	// Last is the number of the last Event, whether it is among these or not.
	Last   uint64          `json:"last"`
	Events []history.Event `json:"events"`
}

// Events asks what happened.
var Events = &Question[history.Query, EventList]{
	Name: "events", Argument: "service", Field: "events",
	Flags: func(flags *pflag.FlagSet, q *history.Query) {
		flags.StringVar(&q.Service, "service", "", "Only events of this Service.")
		flags.Uint64Var(&q.After, "after", 0, "Only events after the one of this number.")
		flags.StringVarP(&q.Namespace, "namespace", "n", "", "Only events of Services in this namespace.")
		flags.IntVar(&q.Last, "last", 100, "How many past events to show at most; 0 for all.")
	},
	Check: func(q *history.Query) error {
		if namespace, name, _ := strings.Cut(q.Service, "/"); q.Service != "" && (namespace == "" || name == "") {
			return fmt.Errorf("%q is not a Service: use NAMESPACE/NAME", q.Service)
		}
		if q.Last < 0 {
			return fmt.Errorf("--last: %d is not a number of events", q.Last)
		}
		return nil
	},
	Write: func(w io.Writer, l *EventList) error {
		for i := range l.Events {
			if _, err := io.WriteString(w, Line(&l.Events[i], "")); err != nil {
				return fmt.Errorf("write an event: %w", err)
			}
		}
		return nil
	},
}

// MaxProposalBytes limits the files of a Proposal.
const MaxProposalBytes = 64 << 20

// Proposal is what the proxy might be given: other manifests, another configuration
// file, or both. What is absent stays as it is.
type Proposal struct {
	Manifests []manifest.File `json:"manifests"`
	// Add says that the manifests are added to what there is, instead of replacing it.
	Add    bool   `json:"add"`
	Config []byte `json:"config"`
}

// Diff asks what a Proposal would change.
var Diff = &Question[Proposal, diff.Report]{
	Name: "diff", Field: "added", Write: diff.Write,
	MaxBytes: MaxProposalBytes/3*4 + MaxProposalBytes/64, // files are in base64
	IsNo:     func(_ *Proposal, r *diff.Report) bool { return r.Different() },
}

// Line returns an event as a line of text, which names its node unless that is "".
func Line(e *history.Event, node string) string {
	column, subject := "", "this node"
	if node != "" {
		column, subject = fmt.Sprintf("%-16s ", printable.Escape(node)), "the node"
	}
	if e.Service != "" {
		subject = e.Service
	}
	return fmt.Sprintf("%s  %s%-24s %s\n", e.At.Local().Format("2006-01-02 15:04:05.000"),
		column, printable.Escape(subject), printable.Escape(e.Text()))
}
