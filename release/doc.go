// Command release packs what was built: images of several architectures in the formats
// of OCI and Docker, the Helm chart, a list of what each binary is made of, and checksums.
//
//	release -version v1.2.3 -time 1767225600 -binary linux/amd64=PATH -binary linux/arm64=PATH -chart DIR -out DIR
//
// The same input gives the same bytes, on any machine: times are given, entries are in a
// fixed order, and nothing is asked of the network. It needs no container engine.
//
// It is a module of its own, so that its libraries are none of the proxy's.
package main
