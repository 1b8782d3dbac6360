package manifest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxPath is longer than the path of any field that exists.
const maxPath = 1000

// locator finds the line of a field. It parses the document anew when it is
// first asked, so that documents without problems pay nothing for it.
type locator struct {
	doc    document
	root   *yaml.Node
	parsed bool
}

func (l *locator) parse() *yaml.Node {
	if !l.parsed {
		l.parsed = true
		var root yaml.Node
		// JSON is YAML, but for tabs between its tokens.
		if yaml.Unmarshal(bytes.ReplaceAll(l.doc.text, []byte("\t"), []byte(" ")), &root) == nil && len(root.Content) > 0 {
			l.root = root.Content[0]
		}
	}
	return l.root
}

// line returns the line of a field in the file, or of what is nearest around
// it, or 0 if the document cannot be parsed.
func (l *locator) line(path string) int {
	root := l.parse()
	if root == nil {
		return 0
	}
	return l.doc.line + find(root, path).Line - 1
}

// repeated returns the paths of the keys that their mapping has already.
func (l *locator) repeated() (paths []string) {
	var walk func(n *yaml.Node, path string)
	walk = func(n *yaml.Node, path string) {
		if len(path) > maxPath {
			return
		}
		seen := map[string]bool{}
		for i, child := range n.Content {
			switch {
			case n.Kind == yaml.SequenceNode:
				walk(child, fmt.Sprintf("%s[%d]", path, i))
			case i%2 == 1: // the value of the key before it
				key := n.Content[i-1].Value
				at := strings.TrimPrefix(path+"."+key, ".")
				if seen[key] {
					paths = append(paths, at)
				}
				seen[key] = true
				walk(child, at)
			}
		}
	}
	if root := l.parse(); root != nil {
		walk(root, "")
	}
	return paths
}

// find walks down a path such as spec.ports[0].port as far as it leads. For a
// key it returns the key's node, whose line is where a reader looks.
func find(n *yaml.Node, path string) *yaml.Node {
	at := n
	for path != "" {
		n = resolve(n)
		switch n.Kind {
		case yaml.MappingNode:
			key, value, rest := child(n, path)
			if key == nil {
				return at
			}
			at, n, path = key, value, rest
		case yaml.SequenceNode:
			item, rest := element(n, path)
			if item == nil {
				return at
			}
			at, n, path = item, item, rest
		default:
			return at
		}
	}
	return at
}

// child finds the longest key that the path starts with: keys may have dots.
// Of a repeated key it is the last one.
func child(n *yaml.Node, path string) (key, value *yaml.Node, rest string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		after, ok := strings.CutPrefix(path, k.Value)
		if !ok || after != "" && after[0] != '.' && after[0] != '[' {
			continue
		}
		if key == nil || len(k.Value) >= len(key.Value) {
			key, value, rest = k, n.Content[i+1], strings.TrimPrefix(after, ".")
		}
	}
	return key, value, rest
}

func element(n *yaml.Node, path string) (item *yaml.Node, rest string) {
	number, after, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
	i, err := strconv.Atoi(number)
	if !ok || err != nil || i < 0 || i >= len(n.Content) {
		return nil, ""
	}
	return n.Content[i], strings.TrimPrefix(after, ".")
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
