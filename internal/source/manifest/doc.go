// Package manifest is the source that reads Kubernetes objects from a file or
// a directory of YAML or JSON and follows its changes.
//
// Services, EndpointSlices, Endpoints, ServiceCIDRs and this node's Node are
// used, alone or in lists; other kinds are skipped. Documents are decoded
// strictly, and an object is refused if an API server would refuse it. Package
// source finds most of that; this package checks what source takes for granted.
//
// A bad document harms only itself. The last good content of its file stays in
// force until the file is fixed or deleted; a file that never was good
// contributes its good documents. While the path itself cannot be read, all that
// was loaded stays in force.
//
// A file that had objects, and is empty or ends inside a document, is taken for one
// that is being written: its last content stays for a while. An object that was gone
// for as short a time is not new.
//
// Work follows change: of a directory, only the files that changed are read; of
// a file, only the documents that changed are decoded; of the objects, only those
// of changed files are compared, and only differences reach the sink.
package manifest
