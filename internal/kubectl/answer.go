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

	"sluice/internal/printable"
)

const (
	// maxParallel is how many nodes are asked at a time.
	maxParallel = 16
	// patience is how long a node has to answer.
	patience = 40 * time.Second
)

// answer is what the proxy of a node wrote.
type answer struct {
	pod  pod
	text []byte
	code int
	err  error // there is no answer
}

// noAnswer is the exit code of a command that gets no answer.
const noAnswer = 2

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
	var stdin io.Reader
	if input != nil {
		stdin = bytes.NewReader(input)
	}
	var stdout, stderr bytes.Buffer
	a := &answer{pod: p}
	a.code, a.err = c.exec(ctx, p, args, stdin, &stdout, &stderr)
	a.text = stdout.Bytes()
	if a.err == nil && a.code == noAnswer || a.err == nil && len(a.text) == 0 && stderr.Len() > 0 {
		why := strings.TrimPrefix(strings.TrimSpace(stderr.String()), "Error: ")
		if strings.Contains(why, "unknown command") || strings.Contains(why, "unknown flag") || strings.Contains(why, "unknown shorthand") {
			why += " (it may be another kube-proxy, or another version of Sluice)"
		}
		a.err = errors.New(why)
	}
	return a
}

// decode decodes an answer in JSON.
func (a *answer) decode(into any) error {
	if a.err != nil {
		return a.err
	}
	if err := json.Unmarshal(a.text, into); err != nil {
		return fmt.Errorf("understand the answer of pod %s: %w", a.pod.name, err)
	}
	return nil
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
		switch {
		case a.err != nil:
			out[i].Error = a.err.Error()
		case json.Valid(a.text):
			out[i].Answer = a.text
		default:
			out[i].Error = "the answer is not JSON"
		}
	}
	return nodeAnswers{out}
}
