// Package manifest is the source that reads Kubernetes objects from a file or
// a folder of YAML or JSON and follows every change of it.
//
// Services, EndpointSlices, Endpoints, ServiceCIDRs and this node's Node are
// used, alone or in lists; objects of other kinds are skipped. Documents are
// decoded strictly and checked much as an API server would, except that there
// is nobody here to allocate addresses and ports: a manifest must hold them.
//
// One bad document harms only itself. It is reported with its place, the field
// and a remedy; the file's last good content stays in force until the file is
// mended or deleted. A file that never was good contributes its good documents.
// While the path itself cannot be read, all that was loaded stays in force.
//
// Only differences reach the sink, in one update for each time the path is read.
package manifest
