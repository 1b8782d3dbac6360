// Package testkit has what tests of many packages need: patience, a log that is
// kept, and addresses of their own.
package testkit
