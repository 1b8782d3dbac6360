package kubectl

import (
	"bytes"
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
	// patience is how long a node has to answer.
	patience = 40 * time.Second
	// maxAnswer is how much a node may answer, and maxError how much it may complain. One that
	// sends more has not answered.
	maxAnswer = 64 << 20
	maxError  = 64 << 10
)

// answer is what the proxy of a node wrote, in JSON.
type answer struct {
	pod   pod
	text  []byte
	value any // that was decoded from the text
	code  int
	err   error // there is no answer
}

// Exit codes: of an answer that is not the one that users hope for, and of none.
const (
	bad      = 1
	noAnswer = 2
)

// ask runs a command on nodes. Input is given to each of them, nil for none.
func (c *cluster) ask(ctx context.Context, pods []pod, input []byte, args ...string) []*answer {
	answers := make([]*answer, len(pods))
	turns := make(chan struct{}, maxParallel)
	var group sync.WaitGroup
	for i, p := range pods {
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			answers[i] = c.askOne(ctx, p, input, args)
		})
	}
	group.Wait()
	slices.SortFunc(answers, byNode)
	return answers
}

func (c *cluster) askOne(ctx context.Context, p pod, input []byte, args []string) *answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var stdin io.Reader
	if input != nil {
		stdin = bytes.NewReader(input)
	}
	stdout, stderr := &bounded{most: maxAnswer, full: stop}, &bounded{most: maxError, full: stop}
	a := &answer{pod: p}
	a.code, a.err = c.exec(ctx, p, args, stdin, stdout, stderr)
	a.text = stdout.kept.Bytes()
	switch cause := context.Cause(ctx); {
	case a.err != nil && cause != nil:
		a.err = fmt.Errorf("pod %s does not answer: %w", p.name, cause)
	case a.err == nil && a.code != 0 && a.code != bad, a.err == nil && len(a.text) == 0 && stderr.kept.Len() > 0:
		a.err = complaint(stderr.kept.String(), a.code)
	}
	return a
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

// understand decodes answers. One that cannot be decoded is none.
func understand[T any](answers []*answer, field string) {
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		value, err := decode[T](a.text, field)
		if err != nil {
			a.err = fmt.Errorf("pod %s has not answered as Sluice does: %w", a.pod.name, err)
			continue
		}
		a.value = value
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

// valueOf returns an answer that is understood.
func valueOf[T any](a *answer) (*T, error) {
	if a.err != nil {
		return nil, a.err
	}
	return a.value.(*T), nil
}

// worst returns the exit code for answers of several nodes.
func worst(answers []*answer) (code int) {
	for _, a := range answers {
		if a.err != nil {
			return noAnswer
		}
		code = max(code, a.code)
	}
	return code
}

// group is the nodes with the same answer.
type group struct {
	key   string
	nodes []string
	first *answer
}

// grouped groups answers by a key, those of most nodes first. Nodes without an answer
// are grouped by the reason.
func grouped(answers []*answer, key func(*answer) (string, error)) []*group {
	var groups []*group
	for _, a := range answers {
		k, err := key(a)
		if err != nil {
			k = "NO ANSWER: " + err.Error()
		}
		i := slices.IndexFunc(groups, func(g *group) bool { return g.key == k })
		if i < 0 {
			i, groups = len(groups), append(groups, &group{key: k, first: a})
		}
		groups[i].nodes = append(groups[i].nodes, a.pod.node)
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return len(b.nodes) - len(a.nodes) })
	return groups
}

// maxNodes is how many nodes of a group are named.
const maxNodes = 20

func (g *group) nodeList() string {
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

func listed(answers []*answer) nodeAnswers {
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
