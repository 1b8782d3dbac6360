// Package kubelet runs pods on a node of a lab, as a kubelet and its container
// runtime do: from the Pod of the API server, with an image from an archive, in
// containers with only the privileges that the Pod gives them.
//
// It supports what the manifests of Sluice use, and refuses everything else. The
// containers are created by crun, an OCI runtime. There are no cgroups: requests
// and limits have no effect.
//
// A Machine adds what a node of a lab lacks to run containers: its own processes
// and mounts. They end with it, and it ends with this process, however that ends.
package kubelet
