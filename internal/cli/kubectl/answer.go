package kubectl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/internal/base/printable"
)

const (
	// maxParallel is how many nodes are asked at a time.
	maxParallel = 16
	// answerTimeout is how long a node has to answer.
	answerTimeout = 40 * time.Second
	// maxAnswer is how much a node may answer, and maxError how much it may complain. One that
	// sends more has not answered.
	maxAnswer = 64 << 20
	maxError  = 64 << 10
)

// answer is what the proxy of a node wrote, in JSON.
type answer[Reply any] struct {
	pod   pod
	text  []byte
	reply *Reply // decoded from the text
	code  int
	err   error // there is no answer
}

// Exit codes: of an answer that is not the one that users hope for, and of none.
const (
	bad      = 1
	noAnswer = 2
)

// askAll runs a command on nodes. Input is given to each of them, nil for none. Every reply has a
// field.
func askAll[Reply any](ctx context.Context, c *cluster, pods []pod, field string, input []byte, args []string) []*answer[Reply] {
	answers := make([]*answer[Reply], len(pods))
	turns := make(chan struct{}, maxParallel)
	var group sync.WaitGroup
	for i, p := range pods {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			answers[i] = &answer[Reply]{pod: p}
			answers[i].ask(ctx, c, input, args)
			answers[i].understand(field)
		})
	}
	group.Wait()
	slices.SortFunc(answers, func(a, b *answer[Reply]) int { return cmp.Compare(a.pod.node, b.pod.node) })
	return answers
}

func (a *answer[Reply]) ask(ctx context.Context, c *cluster, input []byte, args []string) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var stdin io.Reader
	if input != nil {
		stdin = bytes.NewReader(input)
	}
	stdout, stderr := &bounded{most: maxAnswer, full: stop}, &bounded{most: maxError, full: stop}
	a.code, a.err = c.exec(ctx, a.pod, args, stdin, stdout, stderr)
	a.text = stdout.kept.Bytes()
	switch cause := context.Cause(ctx); {
	case a.err != nil && cause != nil:
		a.err = fmt.Errorf("pod %s does not answer: %w", a.pod.name, cause)
	case a.err == nil && a.code != 0 && a.code != bad, a.err == nil && len(a.text) == 0 && stderr.kept.Len() > 0:
		a.err = complaint(stderr.kept.String(), a.code)
	}
}

// complaint is what a command said that has no answer.
func complaint(text string, code int) error {
	why := strings.TrimPrefix(strings.TrimSpace(text[:min(len(text), maxError)]), "Error: ")
	switch {
	case why == "":
		why = fmt.Sprintf("kube-proxy ended with %d", code)
	case strings.Contains(why, "unknown command") || strings.Contains(why, "unknown flag") || strings.Contains(why, "unknown shorthand"):
		why += " (it may be another kube-proxy, or another version of Sluice)"
	}
	return errors.New(why)
}

// bounded keeps the first bytes that are written to it, and calls full when there are more.
type bounded struct {
	kept bytes.Buffer // not embedded: its ReadFrom knows no bounds
	most int
	full func(error)
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.most - b.kept.Len()
	if room < len(p) {
		b.full(fmt.Errorf("it has sent more than %d bytes", b.most))
	}
	b.kept.Write(p[:min(len(p), room)])
	return len(p), nil
}

// understand decodes an answer. One that cannot be decoded is none.
func (a *answer[Reply]) understand(field string) {
	if a.err != nil {
		return
	}
	if a.reply, a.err = decode[Reply](a.text, field); a.err != nil {
		a.err = fmt.Errorf("pod %s has not answered as Sluice does: %w", a.pod.name, a.err)
	}
}

// decode decodes JSON, an object that has a field.
func decode[T any](text []byte, field string) (*T, error) {
	var has map[string]json.RawMessage
	if err := json.Unmarshal(text, &has); err != nil {
		return nil, err
	}
	if has[field] == nil {
		return nil, fmt.Errorf("it has no field %q", field)
	}
	value := new(T)
	return value, json.Unmarshal(text, value)
}

// worst returns the exit code for answers of several nodes.
func worst[Reply any](answers []*answer[Reply]) (code int) {
	for _, a := range answers {
		if a.err != nil {
			return noAnswer
		}
		code = max(code, a.code)
	}
	return code
}

// group is the nodes with the same answer.
type group[Reply any] struct {
	key   string
	nodes []string
	reply *Reply // nil for none
}

// grouped groups answers by a key, those of most nodes first. Nodes without an answer
// are grouped by the reason.
func grouped[Reply any](answers []*answer[Reply], key func(*Reply) string) []*group[Reply] {
	var groups []*group[Reply]
	for _, a := range answers {
		var k string
		if a.err != nil {
			k, a.reply = "NO ANSWER: "+a.err.Error(), nil
		} else {
			k = key(a.reply)
		}
		i := slices.IndexFunc(groups, func(g *group[Reply]) bool { return g.key == k })
		if i < 0 {
			i, groups = len(groups), append(groups, &group[Reply]{key: k, reply: a.reply})
		}
		groups[i].nodes = append(groups[i].nodes, a.pod.node)
	}
	slices.SortStableFunc(groups, func(a, b *group[Reply]) int { return len(b.nodes) - len(a.nodes) })
	return groups
}

// maxNodes is how many nodes of a group are named.
const maxNodes = 20

func (g *group[Reply]) nodeList() string {
	return printable.ListFirst(g.nodes, maxNodes, ", ", func(s string) string { return s })
}

// nodeJSON is the answer of a node in JSON. The names of its fields never change.
type nodeJSON struct {
	Node   string          `json:"node"`
	Pod    string          `json:"pod"`
	Code   int             `json:"exitCode"`
	Error  string          `json:"error,omitempty"`
	Answer json.RawMessage `json:"answer,omitempty"`
}

// nodeAnswers are those of all nodes, for programs.
type nodeAnswers struct {
	Nodes []nodeJSON `json:"nodes"`
}

func listed[Reply any](answers []*answer[Reply]) nodeAnswers {
	out := make([]nodeJSON, len(answers))
	for i, a := range answers {
		out[i] = nodeJSON{Node: a.pod.node, Pod: a.pod.name, Code: a.code}
		if a.err != nil {
			out[i].Error = a.err.Error()
		} else {
			out[i].Answer = a.text
		}
	}
	return nodeAnswers{out}
}
