// Command toymode is kube-proxy with one more mode, which programs nothing.
package main

import (
	"os"

	"sluice/internal/cli"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/mode"
)

func main() {
	mode.All = append(mode.All, dataplanetest.Toy)
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
