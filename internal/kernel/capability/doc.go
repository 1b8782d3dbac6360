// Package capability knows the one capability that the proxy needs, CAP_NET_ADMIN.
//
// A process of root in a container has it effective. Another user gets it from the
// program's file, which the image marks as permitting it, and Raise makes it effective.
// The file does not demand that: it can be run by users without the capability, for
// commands that do not need it.
package capability
