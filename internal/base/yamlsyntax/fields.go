package yamlsyntax

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxPath is longer than the path of any field that exists.
const maxPath = 1000

// Fields is where the fields of a document are.
type Fields struct {
	lines    map[string]int // by path, such as spec.ports[0].port
	Repeated []string       // paths of keys that occur before in their mapping
}

// Locate finds the fields of a document in YAML or JSON; none if it cannot be parsed.
func Locate(text []byte) *Fields {
	f := &Fields{lines: map[string]int{}}
	var root yaml.Node
	// JSON is YAML, but for tabs between its tokens.
	if yaml.Unmarshal(bytes.ReplaceAll(text, []byte("\t"), []byte(" ")), &root) == nil && len(root.Content) > 0 {
		f.lines[""] = root.Content[0].Line
		f.walk(root.Content[0], "")
	}
	return f
}

// Line returns the line of a field, from 1, or of what is nearest around it, or 0. Of a
// field that is there more than once, it is the last one's.
func (f *Fields) Line(path string) int {
	for ; ; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
		if line, ok := f.lines[path]; ok || path == "" {
			return line
		}
	}
}

// walk records what is below a node. A field is at the line of its key.
func (f *Fields) walk(n *yaml.Node, path string) {
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
				f.Repeated = append(f.Repeated, at)
			}
			below[at] = true
		}
		f.lines[at] = line
		f.walk(child, at)
	}
}
