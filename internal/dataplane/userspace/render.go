package userspace

import (
	"io"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// Render writes the table as nft(8) lists it. The same input always gives the same
// text, so the ports, which are chosen when the proxy starts, are 0.
func Render(w io.Writer, desired *plan.Desired, o dataplane.RenderOptions) error {
	const note = "# The proxy itself forwards connections. In place of port 0 are those on which it listens.\n"
	if _, err := io.WriteString(w, note); err != nil {
		return err
	}
	target := newTarget(func(f model.Family) *sockets {
		if ip := desired.Settings.ProxyIP(f); ip.IsValid() {
			return &sockets{addr: ip}
		}
		return nil
	})
	return nftables.RenderWith(target, w, desired, o)
}
