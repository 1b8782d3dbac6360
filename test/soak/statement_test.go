//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/internal/answer/explain"
	services "sluice/internal/answer/listing"
	"sluice/internal/answer/question"
	"sluice/internal/observe/verdict"
	"sluice/internal/testkit"
	"sluice/test/lab"
)

// statement is what the proxy says at a time between two.
type statement struct {
	from, until time.Time
	words       map[subject]verdict.Word
	proxy       verdict.ProxyWord
}

// voice is one of the places where the proxy says it.
type voice struct {
	name string
	// services is set if it knows no kinds of clients.
	services   bool
	period     time.Duration
	ask        func(context.Context, *node) (statement, error)
	statements []statement
	// limit is how long a statement may be untrue, on a machine as busy as it was.
	limit time.Duration
}

// statements are all that the proxy says, all the time.
type statements struct {
	node   *node
	cancel context.CancelFunc
	done   sync.WaitGroup

	mutex sync.Mutex
	all   []*voice
}

// listen has the proxy asked until stop is called.
func listen(ctx context.Context, n *node) *statements {
	s := &statements{node: n, all: []*voice{
		{name: "services", period: 200 * time.Millisecond, ask: askServices},
		{name: "/metrics", services: true, period: time.Second, ask: askMetrics},
		{name: "explain", period: time.Second, ask: askExplain},
		{name: "status", services: true, period: time.Second, ask: askStatus},
		{name: "the page", services: true, period: time.Second, ask: askPage},
	}}
	ctx, s.cancel = context.WithCancel(ctx)
	for _, v := range s.all {
		s.done.Go(func() { s.run(ctx, v) })
	}
	return s
}

func (s *statements) stop() {
	s.cancel()
	s.done.Wait()
}

func (s *statements) run(ctx context.Context, v *voice) {
	for ctx.Err() == nil {
		asking, cancel := testkit.WithTimeout(ctx, time.Second)
		from := time.Now()
		x, err := v.ask(asking, s.node)
		cancel()
		x.from, x.until = from, time.Now()
		s.mutex.Lock()
		if err == nil {
			v.statements = append(v.statements, x)
		}
		v.limit = max(v.limit, testkit.Scaled(verdictTime))
		s.mutex.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(v.period):
		}
	}
}

// last returns what was said last, "" for nothing.
func (s *statements) last(about subject) verdict.Word {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	all := s.all[0].statements
	if len(all) == 0 || time.Since(all[len(all)-1].until) > testkit.Scaled(verdictGap) {
		return ""
	}
	return all[len(all)-1].words[about]
}

// proxy returns what was said last of the proxy.
func (s *statements) proxy() verdict.ProxyWord {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if all := s.all[0].statements; len(all) > 0 {
		return all[len(all)-1].proxy
	}
	return ""
}

// slowest is verdictTime on a machine as busy as it was at most.
func (s *statements) slowest() (limit time.Duration) {
	for _, v := range s.voices() {
		limit = max(limit, v.limit)
	}
	return limit
}

// voices returns copies.
func (s *statements) voices() (all []*voice) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, v := range s.all {
		c := *v
		all = append(all, &c)
	}
	return all
}

func (s *statements) forget() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, v := range s.all {
		v.statements = nil
	}
}

// streaks returns when the same was said without an interruption.
func (v *voice) streaks(said func(statement) bool) (all []span) {
	before := -1 // the last one of the streak
	for i, x := range v.statements {
		if !said(x) {
			before = -1
			continue
		}
		if before < 0 || x.from.Sub(v.statements[before].until) > verdictGap {
			all = append(all, span{from: x.until})
		}
		all[len(all)-1].until = x.from
		before = i
	}
	return all
}

func askServices(ctx context.Context, n *node) (statement, error) {
	list, err := question.Services.Ask(ctx, n.asks, &services.Query{})
	if err != nil {
		return statement{}, err
	}
	x := statement{words: map[subject]verdict.Word{}, proxy: list.Proxy.Word}
	for _, svc := range list.Services {
		var number int
		if _, err := fmt.Sscanf(svc.Name, "s%d", &number); err != nil {
			return statement{}, err
		}
		x.words[subject{number, ""}] = svc.Word
		for _, c := range svc.Clients {
			x.words[subject{number, c.From}] = c.Word
		}
	}
	return x, nil
}

var (
	serviceMetric = regexp.MustCompile(`^sluice_service_verdict\{namespace="default",service="s(\d+)",verdict="([a-z-]+)".*\} 1$`)
	proxyMetric   = regexp.MustCompile(`^sluice_proxy_verdict\{verdict="([a-z-]+)"\} 1$`)
)

// askMetrics reads the metrics, which have the Services that do not simply work.
func askMetrics(_ context.Context, n *node) (statement, error) {
	at := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10249"), Timeout: time.Second}
	page, err := n.lab.Get(at, "/metrics")
	if err == nil && page.Status != http.StatusOK {
		err = errors.New(page.Text)
	}
	if err != nil {
		return statement{}, err
	}
	x := statement{words: map[subject]verdict.Word{}}
	for line := range strings.Lines(string(page.Body)) {
		line = strings.TrimSpace(line)
		if m := serviceMetric.FindStringSubmatch(line); m != nil {
			var number int
			if _, err := fmt.Sscan(m[1], &number); err != nil {
				return statement{}, err
			}
			x.words[subject{number, ""}] = verdict.Word(m[2])
		}
		if m := proxyMetric.FindStringSubmatch(line); m != nil {
			x.proxy = verdict.ProxyWord(m[1])
		}
	}
	return x, x.others()
}

// others adds that Services work of which nothing else is said.
func (x *statement) others() error {
	if !x.proxy.Ready() {
		return errors.New("the proxy does not know of Services yet")
	}
	for _, number := range []int{spread, single, near} {
		if about := (subject{number, ""}); x.words[about] == "" {
			x.words[about] = verdict.Works
		}
	}
	return nil
}

// askExplain asks about each Service, and about clients of each kind.
func askExplain(ctx context.Context, n *node) (statement, error) {
	x := statement{words: map[subject]verdict.Word{}}
	for _, about := range subjects() {
		reply, err := question.Explain.Ask(ctx, n.asks, &explain.Question{To: fmt.Sprintf("default/s%d", about.number), From: about.from})
		if err != nil {
			return statement{}, err
		}
		if about.from != "" {
			x.words[about] = together(reply.Answers)
			continue
		}
		if reply.Service == nil {
			return statement{}, errors.New("explain does not judge the Service")
		}
		if x.words[about] = reply.Service.Word; reply.Flows && x.words[about] != verdict.Works {
			return statement{}, fmt.Errorf("explain ends well, and says %s", x.words[about])
		}
	}
	return x, nil
}

// together is the word for answers about several families.
func together(answers []explain.Answer) (word verdict.Word) {
	for i, a := range answers {
		switch {
		case i == 0 || a.Verdict == word:
			word = a.Verdict
		case a.Verdict == verdict.Unknown || word == verdict.Unknown:
			word = verdict.Unknown
		case a.Verdict.Failing() && word.Failing():
			word = verdict.NoAnswer
		default:
			word = verdict.WorksForSome
		}
	}
	return word
}

func askStatus(ctx context.Context, n *node) (statement, error) {
	r, err := question.Status.Ask(ctx, n.asks, &question.None{})
	if err != nil {
		return statement{}, err
	}
	x := statement{words: map[subject]verdict.Word{}, proxy: r.Word}
	for _, b := range r.Broken {
		var number int
		if _, err := fmt.Sscanf(b.Service, "default/s%d", &number); err != nil {
			return statement{}, err
		}
		x.words[subject{number, ""}] = b.Verdict
	}
	return x, x.others()
}

var (
	pageRow  = regexp.MustCompile(`(?s)<tr[^>]*>.*?</tr>`)
	pageName = regexp.MustCompile(`id="row-default/s(\d+)"`)
	pageWord = regexp.MustCompile(`<span class="state [a-z]+"[^>]*>([A-Za-z ]+)</span>`)
	pageSign = regexp.MustCompile(`id="sign"[^>]*>([A-Za-z ]+)</p>`)
)

// askPage reads the table of Services on the page for browsers.
func askPage(_ context.Context, n *node) (statement, error) {
	at := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10249"), Timeout: time.Second}
	page, err := n.lab.Get(at, "/")
	if err == nil && page.Status != http.StatusOK {
		err = errors.New(page.Text)
	}
	if err != nil {
		return statement{}, err
	}
	x := statement{words: map[subject]verdict.Word{}}
	if m := pageSign.FindStringSubmatch(page.Text); m != nil {
		x.proxy = verdict.ProxyWord(strings.ReplaceAll(strings.ToLower(m[1]), " ", "-"))
	}
	for _, row := range pageRow.FindAllString(page.Text, -1) {
		name, word := pageName.FindStringSubmatch(row), pageWord.FindStringSubmatch(row)
		if name == nil || word == nil {
			continue
		}
		var number int
		if _, err := fmt.Sscan(name[1], &number); err != nil {
			return statement{}, err
		}
		i := slices.IndexFunc(verdict.Words[:], func(w verdict.Word) bool { return w.Text() == strings.ToLower(word[1]) })
		if i < 0 {
			return statement{}, fmt.Errorf("the page says %q", word[1])
		}
		x.words[subject{number, ""}] = verdict.Words[i]
	}
	if len(x.words) < len(trialServices()) {
		return statement{}, fmt.Errorf("the page has %d Services", len(x.words))
	}
	return x, nil
}
