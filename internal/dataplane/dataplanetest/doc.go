// Package dataplanetest tests proxy modes: Suite has the tests that every mode
// passes, and the rest of the package short notations for values of plan. Toy is a
// mode that programs nothing.
package dataplanetest
