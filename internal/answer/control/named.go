package control

import "strings"

// Named returns the path in place of a default one for the proxy of a name, which serves a node
// beside another one; the path itself without a name.
func Named(path, name string) string {
	base, isDefault := strings.CutSuffix(path, suffix)
	if name == "" || path == "" || !isDefault {
		return path
	}
	return base + "." + name + suffix
}
