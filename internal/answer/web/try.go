package web

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice/internal/answer/explain"
	"sluice/internal/answer/status"
	"sluice/internal/base/httpserver"
	"sluice/internal/model"
	"sluice/internal/observe/experiment"
	"sluice/internal/plan"
)

const (
	// tryEvery is the least time between two connections that visitors have sent.
	tryEvery   = time.Second
	tryTimeout = experiment.Timeout + askTimeout
	maxTrials  = 32 // remembered
	maxForm    = 4 << 10
)

// trial is a connection that a visitor had sent, beside what was predicted for it.
type trial struct {
	id      string
	service model.Name
	from    string // as of a question
	to      string // its address, port and protocol

	At        string
	Predicted status.Condition
	Level     status.Level
	*experiment.Result
}

// trials remembers the last ones, so that a page that is asked for again shows the same.
type trials struct {
	mu   sync.Mutex
	busy bool
	next time.Time // when another one may begin
	all  []*trial  // the oldest first
}

// begin admits one trial at a time, and few of them. If it does not, wait is when to try again.
func (t *trials) begin(now time.Time) (wait time.Duration, admitted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if wait = t.next.Sub(now); t.busy || wait > 0 {
		return max(wait, tryEvery), false
	}
	t.busy, t.next = true, now.Add(tryEvery)
	return 0, true
}

// end ends what begin admitted. It is remembered unless it is nil.
func (t *trials) end(done *trial) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = false
	if done == nil {
		return
	}
	if len(t.all) == maxTrials {
		t.all = slices.Delete(t.all, 0, 1)
	}
	t.all = append(t.all, done)
}

// find returns a trial of a Service, nil if it is not remembered.
func (t *trials) find(id string, service model.Name) *trial {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.all, func(t *trial) bool { return t.id == id && t.service == service })
	if i < 0 {
		return nil
	}
	return t.all[i]
}

// notByGet refuses to send anything for a link, which others may have made.
func notByGet(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodPost)
	http.Error(w, "A connection is sent by the button on the page of a Service only.", http.StatusMethodNotAllowed)
}

// try sends a connection for a visitor, and leads to the page that shows what happened.
func (h *Handler) try(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "The form cannot be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	httpserver.ReadNoMore(w)
	wait, admitted := h.trials.begin(h.Clock.Now())
	if !admitted {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		h.complain(w, r, http.StatusTooManyRequests, "Nothing was sent: this node sends one connection at a time for visitors, and at most one a second. Try again in a moment.")
		return
	}
	done, err := h.send(r.Context(), r.PostForm)
	h.trials.end(done)
	if err != nil {
		h.complain(w, r, http.StatusBadRequest, "Nothing was sent: "+err.Error())
		return
	}
	http.Redirect(w, r, done.link(), http.StatusSeeOther)
}

// complain shows the page of a Service with a complaint about a form.
func (h *Handler) complain(w http.ResponseWriter, r *http.Request, code int, text string) {
	h.limited(func(r *http.Request) answer {
		_, page := h.servicePage(r.Context(), r.PostForm)
		page.Complaint = text
		return answer{code, serviceTemplate, page}
	}).ServeHTTP(w, r)
}

// send opens a connection to an address that the page of a Service shows, and to no other. It
// comes from the node, unless the client is an address.
func (h *Handler) send(ctx context.Context, form url.Values) (*trial, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	t := &trial{id: rand.Text(), service: nameIn(form), from: strings.TrimSpace(form.Get("from")), to: form.Get("to")}
	shown, err := h.Explain(ctx, explain.Question{To: t.service.String(), From: t.from})
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(shown.Answers, func(a explain.Answer) bool { return t.to != "" && destination(&a) == t.to }) {
		return nil, fmt.Errorf("such a client does not reach Service %s at %q now", t.service, t.to)
	}
	if _, err := netip.ParseAddr(t.from); err != nil {
		t.from = plan.NodeClient.String()
	}
	reply, err := h.Explain(ctx, explain.Question{To: t.to, From: t.from, Try: true})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(reply.Answers, func(a explain.Answer) bool { return a.Tried != nil })
	if i < 0 {
		return nil, fmt.Errorf("%s cannot be reached from here any more", t.to)
	}
	a := &reply.Answers[i]
	t.At, t.Result, t.Level = h.Clock.Now().UTC().Format("15:04:05 UTC"), a.Tried, outcomeLevel(a.Tried)
	t.Predicted = condition(levelOf(a.Verdict), a.Verdict.Text(), a.Summary)
	h.Logger.V(2).Info("Sent a connection for a visitor of the page", "to", t.to, "from", t.Result.From, "outcome", t.Outcome)
	return t, nil
}

func (t *trial) link() string {
	return serviceLink(t.service) + "&" + url.Values{"from": {t.from}, "tried": {t.id}}.Encode()
}

func outcomeLevel(r *experiment.Result) status.Level {
	switch {
	case r.Outcome == experiment.Answered:
		return status.Good
	case r.Outcome == experiment.Untried, r.Outcome == experiment.Silent && r.Protocol == model.UDP.String(): // which says little
		return status.Fair
	}
	return status.Bad
}

// destination is where the packet of an answer goes, as explain takes it; "" if nowhere.
func destination(a *explain.Answer) string {
	p := &a.Packet
	if !p.Destination.IsValid() || p.Port == 0 {
		return ""
	}
	return netip.AddrPortFrom(p.Destination, p.Port).String() + "/" + p.Protocol
}

// nameIn returns the name of a Service in the parameters of a page.
func nameIn(params url.Values) model.Name {
	return model.Name{Namespace: params.Get("namespace"), Name: params.Get("name")}
}
