// Package kubectl is the plugin "kubectl sluice". It asks the proxies of a cluster from
// anywhere that kubectl works.
//
// It finds the pods of the proxy through the API server, and runs the commands of
// kube-proxy in them, as kubectl exec does. So it needs no port on the nodes, and the
// rights of its user decide what it may do. Only check, which is for nodes that Sluice is not
// on yet, makes a pod of its own, and deletes it.
package kubectl
