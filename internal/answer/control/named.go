package control

import "strings"

// Named returns the path in place of a default one for the proxy of a name, which serves a node
// beside another one; the path itself without a name.
func Named(path, name string) string {
	base, isSocket := strings.CutSuffix(path, ".sock")
	if name == "" || !isSocket {
		return path
	}
	return base + "." + name + ".sock"
}
