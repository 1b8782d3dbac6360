package ipvs

import (
	"io"
	"slices"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/nftables"
	"sluice/internal/kernel/ipvs"
	"sluice/internal/plan"
)

// Render writes what Reconcile makes in an empty kernel: the table as nft(8) lists it,
// and the virtual services as ipvsadm(8) saves them. The same input always gives the
// same text.
func Render(w io.Writer, desired *plan.Desired, o dataplane.RenderOptions) error {
	if err := nftables.RenderWith(target, w, desired, o); err != nil {
		return err
	}
	services := map[ipvs.Service][]ipvs.Destination{}
	for k, f := range desired.Frontends {
		if !slices.Contains(o.Families, k.Family()) || !scheduled(f) {
			continue
		}
		for _, ip := range addressesOf(k, &desired.Settings) {
			s := &server{Service: ipvs.Service{Key: keyFor(k, ip)}, frontend: f}
			services[s.wanted()] = s.pool()
		}
	}
	_, err := io.WriteString(w, ipvs.Text(services))
	return err
}
