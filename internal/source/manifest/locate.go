package manifest

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxPath is longer than the path of any field that exists.
const maxPath = 1000

// locator finds the lines of fields. It parses the document only when it is first
// used, so that documents without problems cost nothing.
type locator struct {
	doc      *document
	lines    map[string]int // by path, such as spec.ports[0].port; nil before parse
	repeated []string       // paths of keys that occur before in their mapping
}

// line returns the line of a field in the file, or of what is nearest around
// it, or 0 if the document cannot be parsed.
func (l *locator) line(path string) int {
	for lines := l.parse().lines; ; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
		if line, ok := lines[path]; ok || path == "" {
			return line
		}
	}
}

func (l *locator) parse() *locator {
	if l.lines != nil {
		return l
	}
	l.lines = map[string]int{}
	var root yaml.Node
	// JSON is YAML, but for tabs between its tokens.
	if yaml.Unmarshal(bytes.ReplaceAll(l.doc.text, []byte("\t"), []byte(" ")), &root) == nil && len(root.Content) > 0 {
		l.lines[""] = l.doc.line + root.Content[0].Line - 1
		l.walk(root.Content[0], "")
	}
	return l
}

// walk records what is below a node. A field is at the line of its key.
func (l *locator) walk(n *yaml.Node, path string) {
	if len(path) > maxPath {
		return
	}
	below := map[string]bool{}
	for i, child := range n.Content {
		at, line := fmt.Sprintf("%s[%d]", path, i), child.Line
		if n.Kind == yaml.MappingNode {
			if i%2 == 0 {
				continue // the key of the next one
			}
			key := n.Content[i-1]
			at, line = strings.TrimPrefix(path+"."+key.Value, "."), key.Line
			if below[at] {
				l.repeated = append(l.repeated, at)
			}
			below[at] = true
		}
		l.lines[at] = l.doc.line + line - 1
		l.walk(child, at)
	}
}
