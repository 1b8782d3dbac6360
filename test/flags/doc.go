// Package flags holds every flag, every field of the configuration and every
// feature gate that matters to one thing: set it, and something differs that can
// be seen from outside of the process. That may be what happens to a packet, a setting
// of the kernel, a page, the log, what reaches the API server, or how the process
// ends.
//
// The table in table_test.go says for each of them how it is set and what is to be
// seen. Few processes serve many rows of it: a run sets all that its rows say, once
// by flags and once more by a configuration file, and each row is looked at there and
// in another run that does not set it.
package flags
