//go:build linux

package leftover

import (
	"slices"
	"strings"
	"testing"
)

// Each scheduler of virtual services that other modes lack is reported, with a remedy.
func TestSchedulersInPlace(t *testing.T) {
	const table = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr
  -> C000020A:192B      Masq    1      0          0
UDP  0A60000A:0035 mh
TCP  [fd00:0010:0096:0000:0000:0000:0000:0001]:01BB mh persistent 10800
`
	found := schedulersIn(table)
	if !slices.Equal(found, []string{"mh", "rr"}) {
		t.Errorf("the schedulers are %v", found)
	}
	all := differences(found)
	if len(all) != 2 || !strings.Contains(all[0].String(), "ping") || all[0].Remedy != "" {
		t.Errorf("found %v", all)
	}
	if s := all[1].String(); !strings.HasPrefix(s, "IPVS scheduler mh: ") || !strings.Contains(s, "sluice/algorithm: maglev") {
		t.Errorf("found %s", s)
	}
}
