//go:build linux

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"sluice/internal/answer/explain"
	"sluice/internal/answer/listing"
	"sluice/internal/answer/status"
	"sluice/internal/observe/verdict"
	"sluice/test/lab"
)

// judgement is what everything that a person or program reads must say of a Service.
type judgement struct {
	service string
	from    string // the kind of client, "" for all together
	word    verdict.Word
	why     string // a part of the explanation; "" for any
}

// parseVerdict reads "SERVICE [from KIND] WORD [TEXT]".
func parseVerdict(_ *parser, rest string) (action, error) {
	words := strings.Fields(rest)
	if len(words) < 2 {
		return nil, fmt.Errorf("want SERVICE [from pod|node|outside] VERDICT [TEXT]")
	}
	j := judgement{service: words[0]}
	words = words[1:]
	if words[0] == "from" && len(words) > 2 {
		j.from, words = words[1], words[2:]
	}
	j.word, j.why = verdict.Word(words[0]), strings.Join(words[1:], " ")
	if !slices.Contains(verdict.Words[:], j.word) {
		return nil, fmt.Errorf("unknown verdict %q: have %v", j.word, verdict.Words)
	}
	return j, nil
}

// Judges reports whether the script asks what became of its connections: all of them count for that.
func (s *Script) Judges() bool {
	return slices.ContainsFunc(s.steps, func(st step) bool {
		switch st.action.(type) {
		case judgement, *explanation:
			return true
		}
		return false
	})
}

func (j judgement) run(ctx context.Context, r *runner) error {
	r.remember(j)
	// Failures count for 10 s among attempts that succeed, and attempts are seen by a look.
	return r.within(ctx, 4*r.Timeout, func() error {
		for _, place := range []func(context.Context, *runner) error{j.inServices, j.inStatus, j.inExplain, j.onPage, j.inMetrics} {
			if err := place(ctx, r); err != nil {
				j.tryAgain(ctx, r)
				return err
			}
		}
		return nil
	})
}

// tryAgain has the clients of the Service connect again, as those do who get no answer: what
// nobody tries is not known.
func (j judgement) tryAgain(ctx context.Context, r *runner) {
	for _, e := range r.expectations {
		e, ok := e.(*expectation)
		if ok && slices.ContainsFunc(e.to, func(t target) bool { return t.name == j.service }) {
			if single, err := r.expand(e.flows); err == nil {
				r.lab.Probe(ctx, single)
			}
		}
	}
}

// explanation is what explain must say of packets.
type explanation struct {
	flows
	word verdict.Word
	text string // a part of the answer; "" for any
}

// parseExplain reads "FROM -> TO [PROTOCOLS] [FAMILIES] VERDICT [TEXT]".
func parseExplain(p *parser, rest string) (action, error) {
	f, words, err := p.parseFlows(rest, lab.TCP)
	if err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("want a verdict at the end")
	}
	return &explanation{f, verdict.Word(words[0]), strings.Join(words[1:], " ")}, nil
}

func (e *explanation) run(ctx context.Context, r *runner) error {
	r.remember(e)
	single, err := r.expand(e.flows)
	if err != nil {
		return err
	}
	for _, f := range single {
		if err := r.eventually(ctx, func() error { return e.check(ctx, r, f) }); err != nil {
			return err
		}
	}
	return nil
}

func (e *explanation) check(ctx context.Context, r *runner, f lab.Flow) error {
	host, err := r.lab.Host(f.From)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(host.Addrs[:], func(a netip.Addr) bool { return familyOf(a) == familyOf(f.To.Addr()) })
	var reply explain.Reply
	bad, err := r.ask(ctx, &reply, "explain", fmt.Sprintf("%v/%s", f.To, f.Protocol), "--from", host.Addrs[i].String())
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := explain.Write(&text, &reply); err != nil {
		return err
	}
	if reply.Answers[0].Verdict != e.word || bad == (e.word == verdict.Works) || !strings.Contains(text.String(), e.text) {
		return fmt.Errorf("explain of %v ends as if it worked: %t, want %s %s:\n%s", f, !bad, e.word, e.text, &text)
	}
	return nil
}

// ask runs a command of the proxy on node1. Its exit code is 1 for a bad answer.
func (r *runner) ask(ctx context.Context, out any, args ...string) (bad bool, err error) {
	binary := r.Binary
	if binary == "" {
		if binary, err = lab.Binary(); err != nil {
			return false, err
		}
	}
	text, err := r.onNode(ctx, slices.Concat([]string{binary}, args, []string{"-o", "json", "--control-socket", r.socket()})...)
	if jerr := json.Unmarshal([]byte(text), out); jerr != nil {
		return false, fmt.Errorf("%v: %w, %w: %s", args, err, jerr, text)
	}
	return err != nil, nil
}

// socket is where the proxy answers.
func (r *runner) socket() string { return filepath.Join(r.work, "control", "socket") }

func (j judgement) inServices(ctx context.Context, r *runner) error {
	var list listing.List
	if _, err := r.ask(ctx, &list, "services"); err != nil {
		return err
	}
	i := slices.IndexFunc(list.Services, func(s listing.Service) bool { return s.Name == j.service })
	if i < 0 {
		return fmt.Errorf("services does not list %s", j.service)
	}
	s := &list.Services[i]
	word, why := s.Word, s.Why
	if j.from != "" {
		c := slices.IndexFunc(s.Clients, func(c verdict.Client) bool { return c.From == j.from })
		if c < 0 {
			return fmt.Errorf("services has no verdict for %s: %+v", j.from, s.Service)
		}
		word, why = s.Clients[c].Word, s.Clients[c].Why
	}
	if word != j.word || !strings.Contains(why, j.why) {
		return fmt.Errorf("services says %s: %s; want %s: %s", word, why, j.word, j.why)
	}
	return nil
}

// inStatus looks for the Service among those that are broken.
func (j judgement) inStatus(ctx context.Context, r *runner) error {
	if j.from != "" {
		return nil
	}
	var report status.Report
	if _, err := r.ask(ctx, &report, "status"); err != nil {
		return err
	}
	i := slices.IndexFunc(report.Broken, func(b status.Broken) bool { return b.Service == "default/"+j.service })
	switch {
	case i < 0 && j.word != verdict.Works && j.word != verdict.Unknown:
		return fmt.Errorf("status does not say that %s is broken, want %s", j.service, j.word)
	case i >= 0 && report.Broken[i].Verdict != j.word:
		return fmt.Errorf("status says that %s is %s, want %s", j.service, report.Broken[i].Verdict, j.word)
	}
	return nil
}

// inExplain asks about one kind of client, or about all together. One of the answers must fit.
func (j judgement) inExplain(ctx context.Context, r *runner) error {
	args := []string{"explain", "default/" + j.service}
	if j.from != "" {
		args = append(args, "--from", j.from)
	}
	var reply explain.Reply
	bad, err := r.ask(ctx, &reply, args...)
	if err != nil {
		return err
	}
	if j.from == "" && reply.Service != nil {
		return j.ofAll(&reply, bad)
	}
	if bad == (j.word == verdict.Works) {
		return fmt.Errorf("%v ends as if clients were served: %t, want %s", args, !bad, j.word)
	}
	fits := func(a explain.Answer) bool { // some of the answers, one for each port and family, may fail altogether
		return a.Verdict == j.word || j.word == verdict.WorksForSome && a.Verdict.Failing()
	}
	if len(reply.Answers) > 0 && !slices.ContainsFunc(reply.Answers, fits) {
		return fmt.Errorf("%v says %s, want %s", args, reply.Answers[0].Headline(), j.word)
	}
	return nil
}

// ofAll checks what explain says of a Service for all kinds of clients. It ends well also if traffic
// policy Local keeps clients outside away from this node.
func (j judgement) ofAll(reply *explain.Reply, bad bool) error {
	s := reply.Service
	if s.Word != j.word || !strings.Contains(s.Why, j.why) {
		return fmt.Errorf("explain says %s: %s; want %s: %s", s.Word, s.Why, j.word, j.why)
	}
	if bad != s.Faulty() && s.Word != verdict.Unknown {
		return fmt.Errorf("explain ends as if clients were served: %t, but %s: %s", !bad, s.Word, s.Why)
	}
	var text strings.Builder
	if err := explain.Write(&text, reply); err != nil {
		return err
	}
	for _, c := range s.Clients {
		if c.Word != verdict.Works && !strings.Contains(text.String(), c.Why) {
			return fmt.Errorf("explain does not say of clients of kind %s: %s:\n%s", c.From, c.Why, &text)
		}
	}
	return nil
}

// onPage looks at the table of all Services, or at the page of the Service for a kind of client. That
// has a word for each port and family.
func (j judgement) onPage(_ context.Context, r *runner) error {
	path := "/?q=default/" + j.service
	switch {
	case j.from != "" && j.word == verdict.WorksForSome:
		return nil
	case j.from != "":
		path = "/service?namespace=default&name=" + j.service + "&from=" + j.from
	}
	page, err := r.metricsPage(path)
	if err != nil || !strings.Contains(page, ">"+j.word.Text()+"<") {
		return fmt.Errorf("the page does not say that %s %s: %w", j.service, j.word.Text(), err)
	}
	return nil
}

func (j judgement) inMetrics(_ context.Context, r *runner) error {
	if j.from != "" {
		return nil
	}
	page, err := r.metricsPage("/metrics")
	if err != nil {
		return err
	}
	line := fmt.Sprintf("sluice_service_verdict{namespace=%q,service=%q,verdict=%q", "default", j.service, j.word)
	of := fmt.Sprintf("sluice_service_verdict{namespace=%q,service=%q,", "default", j.service)
	if strings.Contains(page, line) != (j.word != verdict.Works) || strings.Contains(page, of) != (j.word != verdict.Works) {
		return fmt.Errorf("the metrics do not say that %s %s", j.service, j.word.Text())
	}
	return nil
}

// metricsPage returns a page of the server for metrics.
func (r *runner) metricsPage(path string) (string, error) {
	at := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10249")}
	page, err := r.lab.Get(at, path)
	if err == nil && page.Status != 200 {
		err = fmt.Errorf("%s: status %d", path, page.Status)
	}
	return page.Text, err
}
