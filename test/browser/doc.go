// Package browser drives a real Chromium, for tests of what people see. It has
// no display, no profile, and talks to nobody but the page under test.
package browser
