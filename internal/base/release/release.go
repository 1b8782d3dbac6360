// Package release knows the version of Sluice that a program is of.
package release

import "runtime/debug"

// version is set by the Makefile.
var version string

// Version returns the release, or the build information if the program was not built by
// the Makefile.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
