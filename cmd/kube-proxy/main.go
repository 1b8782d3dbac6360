// Command kube-proxy makes the Services of a Kubernetes cluster work on a node.
package main

import (
	"os"

	"sluice/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
