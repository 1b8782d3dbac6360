// Package question has the questions that a running proxy answers on its control socket.
package question

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sluice/internal/answer/control"
	"sluice/internal/answer/explain"
	"sluice/internal/answer/listing"
	"sluice/internal/model"
	"sluice/internal/observe/history"
	"sluice/internal/source/manifest"
)

// The pages of the control socket.
const (
	ExplainPage  = "/v1/explain"
	StatusPage   = "/v1/status"
	DiffPage     = "/v1/diff"
	ServicesPage = "/v1/services"
	EventsPage   = "/v1/events"
)

// MaxTopTime is the longest time over which rates are measured: an answer must not take
// longer than the control socket allows.
const MaxTopTime = 20 * time.Second

// EventsReply is the answer to a query of Events. The names of its fields in JSON are an
// interface and never change.
type EventsReply struct {
	// Started is when the proxy started, which numbers its Events anew.
	Started time.Time `json:"started"`
	// Last is the number of the last Event, whether it is among these or not.
	Last   uint64          `json:"last"`
	Events []history.Event `json:"events"`
}

const (
	// MaxProposalBytes limits the files of a preview, and MaxProposalBody the request
	// that contains them in base64.
	MaxProposalBytes = 64 << 20
	MaxProposalBody  = MaxProposalBytes/3*4 + MaxProposalBytes/64
)

// Proposal is what the proxy might be given: other manifests, another configuration
// file, or both. What is absent stays as it is.
type Proposal struct {
	Manifests []manifest.File `json:"manifests"`
	// Add says that the manifests are added to what there is, instead of replacing it.
	Add    bool   `json:"add"`
	Config []byte `json:"config"`
}

func ExplainValues(q explain.Question) url.Values {
	return url.Values{"to": {q.To}, "from": {q.From}, "interface": {q.Interface}, "try": {strconv.FormatBool(q.Try)}, "netns": {q.NetNS}}
}

func ParseExplain(v url.Values) explain.Question {
	return explain.Question{To: v.Get("to"), From: v.Get("from"), Interface: v.Get("interface"), Try: v.Get("try") == "true", NetNS: v.Get("netns")}
}

func ServicesValues(q listing.Query) url.Values {
	return url.Values{
		"namespace": {q.Namespace}, "failing": {strconv.FormatBool(q.Failing)}, "top": {strconv.FormatBool(q.Top)},
		"over": {q.Over.String()}, "most": {strconv.Itoa(q.Most)},
	}
}

func ParseServices(v url.Values) (q listing.Query, err error) {
	q.Namespace, q.Failing, q.Top = v.Get("namespace"), v.Get("failing") == "true", v.Get("top") == "true"
	if most := v.Get("most"); most != "" {
		if q.Most, err = strconv.Atoi(most); err != nil {
			return q, control.BadRequest(err)
		}
	}
	q.Over = 2 * time.Second
	if over := v.Get("over"); over != "" {
		if q.Over, err = time.ParseDuration(over); err != nil || q.Over > MaxTopTime {
			return q, control.BadRequest(fmt.Errorf("%q is not a time to measure", over))
		}
	}
	return q, nil
}

func EventsValues(q history.Query) url.Values {
	v := url.Values{"after": {strconv.FormatUint(q.After, 10)}, "namespace": {q.Namespace}, "last": {strconv.Itoa(q.Most)}}
	if q.Service != (model.Name{}) {
		v.Set("service", q.Service.String())
	}
	return v
}

func ParseEvents(v url.Values) (q history.Query, err error) {
	q.Namespace = v.Get("namespace")
	if s := v.Get("service"); s != "" {
		q.Service.Namespace, q.Service.Name, _ = strings.Cut(s, "/")
	}
	if after := v.Get("after"); after != "" {
		if q.After, err = strconv.ParseUint(after, 10, 64); err != nil {
			return q, control.BadRequest(errors.New("after must be the number of an event"))
		}
	}
	if last := v.Get("last"); last != "" {
		if q.Most, err = strconv.Atoi(last); err != nil || q.Most < 0 {
			return q, control.BadRequest(errors.New("last must be a number of events"))
		}
	}
	return q, nil
}
