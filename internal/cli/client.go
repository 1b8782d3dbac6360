package cli

import (
	"os"

	"github.com/spf13/pflag"

	"sluice/internal/answer/control"
)

func addSocketFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "control-socket", control.DefaultSocket, "Socket on which the proxy answers the commands explain, status, services, events and diff, for root only. The proxy has none if it is empty.")
}

// newClient returns a client of the proxy behind a socket. If this user sees none at
// the default path, but runs a proxy in a sandbox, it is that one.
func newClient(path string) *control.Client {
	if own := control.OwnSocket(); path == control.DefaultSocket && control.IsOwn(own) {
		if _, err := os.Lstat(path); err != nil {
			path = own
		}
	}
	return control.NewClient(path)
}
