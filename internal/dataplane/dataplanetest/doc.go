// Package dataplanetest has what tests of all dataplanes need: values of plan in
// short, and random histories that lead a dataplane through them.
package dataplanetest
