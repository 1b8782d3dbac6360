// Package flags checks that every flag, every field of the configuration and every
// effective feature gate makes a difference that can be seen from outside of the
// process: to a packet, a sysctl, a page, the log, the requests to the API server,
// or how the process exits.
//
// The table in table_test.go has for each row of package configtest what is to be seen.
// Few processes serve many rows: a run sets everything of its rows, once by flags and
// once by a configuration file, and each row is checked there and in another run that
// does not set it.
package flags
