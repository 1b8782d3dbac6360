package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

const (
	// maxDepth is more than any object of Kubernetes needs.
	maxDepth = 1000
	// aliases may make a document this many times longer, plus aliasAllowance.
	maxExpansion   = 10
	aliasAllowance = 1 << 20
	// maxMerges bounds the mappings merged by <<, which can double at each level.
	maxMerges = 10000
)

// yamlToJSON converts one YAML document to JSON. It goes from the parsed nodes
// straight to JSON text, without building maps in between. Repeated keys stay repeated, for the strict decoder to find.
// If it fails, it tells the line if that is known.
func yamlToJSON(text []byte) (raw []byte, line int, err error) {
	var root, extra yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		return []byte("null"), 0, nil
	case err != nil:
		line, err = yamlError(err)
		return nil, line, err
	}
	if err := decoder.Decode(&extra); !errors.Is(err, io.EOF) {
		return nil, 0, errors.New("there is more behind the end of the document")
	}
	w := jsonWriter{
		out:   make([]byte, 0, len(text)),
		limit: maxExpansion*len(text) + aliasAllowance,
		open:  map[*yaml.Node]bool{},
	}
	if err := w.node(&root, 0); err != nil {
		return nil, w.line, err
	}
	return w.out, 0, nil
}

var yamlErrorLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(?s:(.*))$`)

// yamlError takes the line number out of the message of the YAML parser.
func yamlError(err error) (int, error) {
	m := yamlErrorLine.FindStringSubmatch(err.Error())
	line, _ := strconv.Atoi(m[1])
	return line, errors.New(m[2])
}

// jsonWriter writes YAML nodes as JSON.
type jsonWriter struct {
	out   []byte
	limit int
	open  map[*yaml.Node]bool // aliases being written
	merge int                 // mappings merged so far
	line  int                 // of the node that failed
}

func (w *jsonWriter) fail(n *yaml.Node, format string, args ...any) error {
	w.line = n.Line
	return fmt.Errorf(format, args...)
}

func (w *jsonWriter) node(n *yaml.Node, depth int) error {
	if depth > maxDepth {
		return w.fail(n, "it is nested more than %d levels deep", maxDepth)
	}
	if len(w.out) > w.limit {
		return w.fail(n, "its aliases make it more than %d times longer", maxExpansion)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return w.node(n.Content[0], depth)
	case yaml.AliasNode:
		if w.open[n.Alias] {
			return w.fail(n, "alias %s contains itself", n.Value)
		}
		w.open[n.Alias] = true
		defer delete(w.open, n.Alias)
		return w.node(n.Alias, depth+1)
	case yaml.SequenceNode:
		return w.sequence(n, depth)
	case yaml.MappingNode:
		return w.mapping(n, depth)
	}
	return w.scalar(n)
}

func (w *jsonWriter) sequence(n *yaml.Node, depth int) error {
	w.out = append(w.out, '[')
	for i, item := range n.Content {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.node(item, depth+1); err != nil {
			return err
		}
	}
	w.out = append(w.out, ']')
	return nil
}

func (w *jsonWriter) mapping(n *yaml.Node, depth int) error {
	pairs := n.Content
	if hasMerge(n) {
		var err error
		if pairs, err = w.merged(n, depth); err != nil {
			return err
		}
	}
	w.out = append(w.out, '{')
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		key := resolve(pairs[i])
		if key.Kind != yaml.ScalarNode {
			return w.fail(pairs[i], "the key of a mapping must be a plain name")
		}
		w.string(key.Value)
		w.out = append(w.out, ':')
		if err := w.node(pairs[i+1], depth+1); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return nil
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isMerge(key *yaml.Node) bool { return key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" }

func hasMerge(n *yaml.Node) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if isMerge(n.Content[i]) {
			return true
		}
	}
	return false
}

// merged returns the pairs of a mapping with those it merges from others by
// the key <<. Its own keys win, then those of the mapping named first.
func (w *jsonWriter) merged(n *yaml.Node, depth int) ([]*yaml.Node, error) {
	w.merge++
	if depth > maxDepth || w.merge > maxMerges {
		return nil, w.fail(n, "it merges too many mappings")
	}
	var pairs, sources []*yaml.Node
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolve(n.Content[i+1])
		switch {
		case !isMerge(key):
			pairs = append(pairs, key, n.Content[i+1])
			seen[resolve(key).Value] = true
		case value.Kind == yaml.SequenceNode:
			sources = append(sources, value.Content...)
		default:
			sources = append(sources, value)
		}
	}
	for _, source := range sources {
		source = resolve(source)
		if source.Kind != yaml.MappingNode {
			return nil, w.fail(source, "<< can merge mappings only")
		}
		more, err := w.merged(source, depth+1)
		if err != nil {
			return nil, err
		}
		for i := 0; i+1 < len(more); i += 2 {
			if key := resolve(more[i]).Value; !seen[key] {
				seen[key] = true
				pairs = append(pairs, more[i], more[i+1])
			}
		}
	}
	return pairs, nil
}

// oldBools are the words that YAML 1.1 takes for booleans. kubectl does so
// too, and a manifest must mean the same here.
var oldBools = map[string]string{
	"y": "true", "Y": "true", "yes": "true", "Yes": "true", "YES": "true", "on": "true", "On": "true", "ON": "true",
	"n": "false", "N": "false", "no": "false", "No": "false", "NO": "false", "off": "false", "Off": "false", "OFF": "false",
}

func (w *jsonWriter) scalar(n *yaml.Node) error {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		w.out = append(w.out, "null"...)
	case "!!bool", "!!int", "!!float":
		return w.plain(n)
	default:
		if word, ok := oldBools[n.Value]; ok && n.Style == 0 {
			w.out = append(w.out, word...)
			return nil
		}
		w.string(n.Value)
	}
	return nil
}

// isJSONInt tells whether an integer is written as JSON writes it, as all but
// a few are.
func isJSONInt(s string) bool {
	if s == "" || len(s) > 18 || s[0] == '0' && len(s) > 1 {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// plain writes a boolean or a number.
func (w *jsonWriter) plain(n *yaml.Node) error {
	if n.Value == "true" || n.Value == "false" || n.ShortTag() == "!!int" && isJSONInt(n.Value) {
		w.out = append(w.out, n.Value...)
		return nil
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return w.fail(n, "%q is no value of its kind: %v", n.Value, err)
	}
	if f, ok := value.(float64); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
		return w.fail(n, "%s is not a number", n.Value)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return w.fail(n, "%q cannot be used: %w", n.Value, err)
	}
	w.out = append(w.out, raw...)
	return nil
}

func (w *jsonWriter) string(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			raw, _ := json.Marshal(s) // a string can always be marshalled
			w.out = append(w.out, raw...)
			return
		}
	}
	w.out = append(w.out, '"')
	w.out = append(w.out, s...)
	w.out = append(w.out, '"')
}
