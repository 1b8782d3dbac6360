// kubectl-sluice is a plugin of kubectl that asks the proxies of a cluster.
package main

import (
	"os"

	"sluice/internal/cli/kubectl"
)

func main() { os.Exit(kubectl.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
