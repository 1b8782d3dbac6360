package explain

import (
	"cmp"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"sluice/internal/base/printable"
	"sluice/internal/model"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// maxLines is how many endpoints in and out of the pool, and objects of the kernel,
// are written.
const maxLines = 20

// Write writes a reply as text. Names and errors in it are escaped.
func Write(w io.Writer, r *Reply) error {
	t := &text{}
	if r.Stale != "" {
		t.Line("THIS MAY BE OUT OF DATE: %s", r.Stale)
		t.Line("")
	}
	others := t.others(r)
	for i, group := range alike(r.Answers) {
		if i > 0 || others {
			t.Line("")
		}
		t.answer(group)
	}
	if r.Omitted > 0 {
		t.Line("")
		t.Line("and %s more: ask for one, as NAMESPACE/NAME:PORT", printable.Count(r.Omitted, "port"))
	}
	t.advisories(r.Advisories)
	return t.Lines.Write(w)
}

// Others returns the verdict on a Service that does not work for clients of another kind than the
// answers are about, and the kinds to ask about; "" if there is nothing to add.
func (r *Reply) Others() (headline string, kinds []string) {
	s := r.Service
	if s == nil || s.Word == verdict.Works || len(r.Answers) == 0 {
		return "", nil
	}
	p := &r.Answers[0].Packet // a pod that is not recognised is asked for as one
	asked := cmp.Or(p.Asked, p.From)
	at := slices.IndexFunc(s.Clients, func(c verdict.Client) bool { return c.From == asked })
	for _, c := range s.Clients {
		if same := at >= 0 && c.Word == s.Clients[at].Word && c.Why == s.Clients[at].Why; !same && c.Word != verdict.Works {
			kinds = append(kinds, c.From)
		}
	}
	if len(kinds) == 0 && s.Cause != verdict.AddressTaken {
		return "", nil
	}
	return strings.ToUpper(s.Word.Text()) + ": " + s.Why, kinds
}

// others writes that, and reports whether there is something.
func (t *text) others(r *Reply) bool {
	headline, kinds := r.Others()
	if headline == "" {
		return false
	}
	if of := r.Answers[0].Service; of != nil {
		t.Line("Service %s/%s", of.Namespace, of.Name)
	}
	t.Line("%s", headline)
	for i, kind := range kinds {
		t.row(once("more", i), "ask with --from %s", kind)
	}
	return true
}

// maxAdvisories is how many are written; status has them all.
const maxAdvisories = 3

func (t *text) advisories(list []model.Problem) {
	for i, p := range list {
		if i == 0 {
			t.Line("")
			t.Line("This node also has a problem that may affect the answer:")
		}
		if i == maxAdvisories {
			t.Line("  and %d more: kube-proxy status", len(list)-i)
			return
		}
		t.row("warning", "%s: %s", p.Object, p.What())
		t.row("  what to do", "%s", p.Remedy)
	}
}

// text is the text of a reply.
type text struct{ printable.Lines }

// row adds a line with its subject in a column of its own.
func (t *text) row(subject, format string, args ...any) {
	t.Row(16, "  "+subject, format, args...)
}

// alike groups answers about one Service that fail for the same reasons, so that a problem
// of all its ports and families is written once.
func alike(answers []Answer) (groups [][]*Answer) {
	for i := range answers {
		a := &answers[i]
		at := slices.IndexFunc(groups, func(g []*Answer) bool {
			b := g[0]
			return !a.Flows && a.Verdict == b.Verdict && a.Fate == b.Fate && a.Summary == b.Summary && a.Packet.From == b.Packet.From && a.Tried == nil &&
				a.Service != nil && b.Service != nil && a.Service.Namespace == b.Service.Namespace && a.Service.Name == b.Service.Name &&
				slices.Equal(a.Problems, b.Problems)
		})
		if at < 0 {
			groups = append(groups, []*Answer{a})
		} else {
			groups[at] = append(groups[at], a)
		}
	}
	return groups
}

// answer writes what is known of answers that are alike: the verdict, what is wrong and what
// to do, and then how that comes about. Of several, the last part is left out.
func (t *text) answer(group []*Answer) {
	a := group[0]
	if len(group) == 1 {
		t.Line("%s", a.title())
		t.Line("%s", a.Headline())
		t.tried(a.Tried)
		t.problems(a)
		t.details(a)
		return
	}
	name, client := a.Service.Namespace+"/"+a.Service.Name, a.Packet
	if slices.ContainsFunc(group, func(one *Answer) bool { return one.Packet.Source != client.Source }) {
		client.Source = netip.Addr{} // that of a family
	}
	t.Line("Service %s from %s", name, client.client())
	t.Line("%s", a.Headline())
	t.tried(a.Tried)
	t.problems(a)
	t.Line("")
	for i, one := range group {
		t.row(once("concerns", i), "%s", one.at())
	}
	t.row("more", "ask for one port, as %s:%s", name, cmp.Or(a.Service.Port, fmt.Sprint(a.Packet.Port)))
}

func (t *text) problems(a *Answer) {
	for i, p := range a.Problems {
		if i == 0 {
			t.Line("")
		}
		if p.Text != a.Summary {
			t.row(p.label(), "%s", p.Text)
		}
		if p.Remedy != "" {
			t.row("  what to do", "%s", p.Remedy)
		}
	}
}

// label is what an advice is: a problem, or only something to know.
func (p *Advice) label() string {
	if slices.Contains([]string{"similar-name", "same-name", "endpoint", "cluster-ip-only"}, p.Code) {
		return "note"
	}
	return "problem"
}

func (t *text) details(a *Answer) {
	for i, s := range a.Steps {
		if i == 0 {
			t.Line("")
		}
		t.row(s.Subject, "%s", s.Text)
	}
	t.endpoints(a)
	if k := a.Kernel; k != nil {
		for i, o := range k.Objects {
			if i == maxLines {
				t.row("", "and %d more", len(k.Objects)-i)
				break
			}
			t.row(once("in "+k.Of.String(), i), "%s: %s", o.Where, o.What)
		}
	}
	if a.Frontend != nil {
		for i, o := range a.Frontend.Others {
			t.row(once("also answers", i), "%s", o)
		}
	}
}

// once returns the subject in the first of several rows, "" in the others.
func once(subject string, row int) string {
	if row == 0 {
		return subject
	}
	return ""
}

func (a *Answer) title() string {
	var words []string
	if s := a.Service; s != nil {
		name := "Service " + s.Namespace + "/" + s.Name
		if s.Port != "" {
			name += ":" + s.Port
		}
		words = append(words, name)
	}
	p := &a.Packet
	if p.Destination.IsValid() {
		at := fmt.Sprintf("%s/%s", netip.AddrPortFrom(p.Destination, p.Port), p.Protocol)
		if len(words) == 0 {
			words = append(words, "Packet to "+at)
		} else {
			words = append(words, "at "+at)
		}
	}
	return strings.Join(append(words, "from "+p.client()), " ")
}

// at is the frontend that an answer is about, with the name of its port.
func (a *Answer) at() string {
	at := fmt.Sprintf("%s/%s", netip.AddrPortFrom(a.Packet.Destination, a.Packet.Port), a.Packet.Protocol)
	if a.Service.Port != "" {
		at += " (" + a.Service.Port + ")"
	}
	return at
}

func (p *PacketAnswer) client() string {
	from := map[string]string{"pod": "a pod", "node": "this node", "outside": "outside", "": "a pod"}[p.From]
	if p.Asked == plan.PodClient.String() {
		from = "a pod, which counts as outside"
	}
	if p.Source.IsValid() {
		from = fmt.Sprintf("%s (%s)", p.Source, p.From)
	}
	return from
}

// Headline is the verdict and its summary. A refusal says whether clients get an error or no
// answer.
func (a *Answer) Headline() string {
	word := strings.ToUpper(strings.ReplaceAll(a.Verdict.Text(), "-", " "))
	if a.Verdict == verdict.Refused {
		word += " (" + a.Fate + ")"
	}
	return word + ": " + a.Summary
}

func (t *text) endpoints(a *Answer) {
	shown := map[bool]int{}
	first := true
	for _, e := range a.Endpoints {
		if shown[e.In]++; shown[e.In] > maxLines {
			continue
		}
		word := "out"
		if e.In {
			word = "in"
		}
		t.row(once("endpoints", map[bool]int{true: 0, false: 1}[first]), "%-3s  %s  %s", word, e.Address, e.where())
		first = false
	}
	more := a.Omitted
	for _, n := range shown {
		more += max(n-maxLines, 0)
	}
	if more > 0 {
		t.row("", "and %d more; --json lists up to %d", more, maxEndpoints)
	}
}

func (e *EndpointAnswer) where() string {
	where := "on no known node"
	switch {
	case e.Local:
		where = "on this node"
	case e.Node != "":
		where = "on " + e.Node
	}
	if e.Weight != 0 {
		where += fmt.Sprintf(", weight %d", e.Weight)
	}
	if e.Failed > 0 {
		where += fmt.Sprintf(", %s, %s since %s", strings.ToUpper(e.Answers), printable.Count(int(e.Failed), "failed attempt"), e.Since.UTC().Format("15:04:05 UTC"))
	}
	if e.Text != "" {
		where += ": " + e.Text
	}
	return where
}

func prefixes(all []netip.Prefix) string { return printable.List(all, netip.Prefix.String) }

// portText is "80/TCP (http)".
func portText(p model.ServicePort) string {
	s := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	if p.Name != "" {
		s += " (" + p.Name + ")"
	}
	return s
}

// nameText describes a port's name, and says so if it has none.
func nameText(name string) string {
	if name == "" {
		return "without a name"
	}
	return fmt.Sprintf("named %q", name)
}
