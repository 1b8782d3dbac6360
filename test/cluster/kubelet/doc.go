// Package kubelet runs pods on a node of a lab, as a kubelet and its container
// runtime do: from the Pod that the API server has, with an image as a Dockerfile
// makes it, in containers with the rights that the Pod gives them and no others.
//
// It knows what the manifests of Sluice use, and refuses everything else. The
// containers are made by crun, an OCI runtime. There are no cgroups: requests and
// limits do nothing.
//
// A Machine adds what a node of a lab lacks to run containers: processes and mounts
// of its own. Everything that runs or is mounted there ends with it, and it ends
// with this process, however that ends.
package kubelet
