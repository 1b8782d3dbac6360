// Package browser drives a real Chromium, for tests of what people see. It has
// no display, no profile, and connects only to the page under test.
package browser
