package command

import "runtime/debug"

// release is the version that the Makefile builds in.
var release string

// version is the release, or what the Go tool knows of a binary that was not
// built by the Makefile.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown version)"
}
