// Package enginetest runs an engine on a fake dataplane, for tests of packages that
// observe or read engines.
package enginetest
