//go:build linux

package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"sluice/internal/answer/explain"
	"sluice/internal/answer/question"
	"sluice/test/lab"
)

// truthPeriod is how often the proxy is queried while packets seem to be lost, and
// maxExplained about how many flows at a time.
const (
	truthPeriod  = 200 * time.Millisecond
	maxExplained = 3
)

// claim is a statement of the proxy that all is well.
type claim struct {
	about       *probe // nil for all
	says        string
	from, until time.Time
	transcript  string
}

// truth records what the proxy reports while packets seem to be lost.
type truth struct {
	node    *node
	traffic *traffic
	cancel  context.CancelFunc
	done    chan struct{}

	mutex sync.Mutex
	noted []claim
	asked int
}

func watchTruth(ctx context.Context, n *node, t *traffic) *truth {
	ctx, cancel := context.WithCancel(ctx)
	w := &truth{node: n, traffic: t, cancel: cancel, done: make(chan struct{})}
	go w.run(ctx)
	return w
}

func (w *truth) stop() {
	w.cancel()
	<-w.done
}

func (w *truth) run(ctx context.Context) {
	defer close(w.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(truthPeriod):
		}
		bad := slices.DeleteFunc(w.traffic.suspicious(), func(p *probe) bool { return !p.fresh || p.want != lab.Answered })
		if len(bad) == 0 {
			continue
		}
		w.ask(w.healthz)
		w.ask(func() (string, string) { return w.status(ctx) })
		for _, p := range bad[:min(len(bad), maxExplained)] {
			w.askAbout(p, func() (string, string) { return w.explain(ctx, p) })
		}
	}
}

func (w *truth) ask(question func() (says, transcript string)) { w.askAbout(nil, question) }

// askAbout queries the proxy, and records the answer if it is that all is well.
func (w *truth) askAbout(p *probe, question func() (says, transcript string)) {
	from := time.Now()
	says, transcript := question()
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.asked++
	if says != "" {
		w.noted = append(w.noted, claim{p, says, from, time.Now(), transcript})
	}
}

func (w *truth) claims() []claim {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return slices.Clone(w.noted)
}

func (w *truth) forget() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.noted = nil
}

func (w *truth) healthz() (says, transcript string) {
	at := lab.Flow{From: "node1", Protocol: lab.TCP, To: netip.MustParseAddrPort("127.0.0.1:10256"), Timeout: lab.ShortTimeout}
	page, err := w.node.lab.Get(at, "/healthz")
	if err != nil || page.Status != http.StatusOK {
		return "", ""
	}
	return "/healthz says 200", string(page.Body)
}

func (w *truth) status(ctx context.Context) (says, transcript string) {
	r, err := asked(ctx, w, question.Status, &question.None{})
	if err != nil || !r.Healthy {
		return "", ""
	}
	return "status says healthy", asJSON(r)
}

func (w *truth) explain(ctx context.Context, p *probe) (says, transcript string) {
	host, err := w.node.lab.Host(p.flow.From)
	if err != nil {
		return "", ""
	}
	source := host.Addrs[0]
	if p.flow.To.Addr().Is6() {
		source = host.Addrs[1]
	}
	query := &explain.Question{To: fmt.Sprintf("%v/%s", p.flow.To, p.flow.Protocol), From: source.String()}
	r, err := asked(ctx, w, question.Explain, query)
	if err != nil || !r.Flows {
		return "", ""
	}
	return "explain says served", asJSON(r)
}

func asked[Query, Reply any](ctx context.Context, w *truth, q *question.Question[Query, Reply], query *Query) (*Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return q.Ask(ctx, w.node.asks, query)
}

func asJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
