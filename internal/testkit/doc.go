// Package testkit has what tests of many packages need: polling with a generous
// timeout, a log that can be searched, and addresses.
package testkit
