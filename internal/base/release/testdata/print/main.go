// Command print prints the version.
package main

import (
	"fmt"

	"sluice/internal/base/release"
)

func main() { fmt.Println(release.Version()) }
