//go:build linux

package leftover

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// The kernel releases the set of a rule a moment after the rule is deleted.
const (
	setTimeout = 2 * time.Second
	setRetry   = 20 * time.Millisecond
)

// ipsets are the sets of IPVS mode, for IPv4.
var ipsets = []string{
	"KUBE-LOOP-BACK", "KUBE-CLUSTER-IP", "KUBE-IPVS-IPS",
	"KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL",
	"KUBE-LOAD-BALANCER", "KUBE-LOAD-BALANCER-LOCAL", "KUBE-LOAD-BALANCER-FW",
	"KUBE-LOAD-BALANCER-SOURCE-IP", "KUBE-LOAD-BALANCER-SOURCE-CIDR",
	"KUBE-NODE-PORT-TCP", "KUBE-NODE-PORT-LOCAL-TCP",
	"KUBE-NODE-PORT-UDP", "KUBE-NODE-PORT-LOCAL-UDP",
	"KUBE-NODE-PORT-SCTP-HASH", "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
	"KUBE-HEALTH-CHECK-NODE-PORT",
}

// maxSetName is the maximum length of a name; kube-proxy truncates longer ones.
const maxSetName = 31

// ipv6Name is the name of the corresponding set for IPv6.
func ipv6Name(set string) string {
	name := strings.Replace(set, "KUBE-", "KUBE-6-", 1)
	return name[:min(len(name), maxSetName)]
}

// proxySets are the names of all sets of IPVS mode, of both families.
func proxySets() []string {
	var names []string
	for _, set := range ipsets {
		names = append(names, set, ipv6Name(set))
	}
	return names
}

// destroySets removes the sets of IPVS mode.
func destroySets(ctx context.Context, log logr.Logger) error {
	conn, err := nfnetlink.Dial(0)
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	removed := 0
	for _, name := range proxySets() {
		err := destroySet(ctx, conn, name)
		switch {
		case err == nil:
			removed++
		case errors.Is(err, unix.ENOENT):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
			return nil // this kernel has no sets
		default:
			errs = append(errs, fmt.Errorf("remove the set %s: %w", name, err))
		}
	}
	if removed > 0 {
		log.Info("Removed the sets of an earlier kube-proxy", "sets", removed)
	}
	return errors.Join(errs...)
}

func destroySet(ctx context.Context, conn *nfnetlink.Conn, name string) error {
	for deadline := time.Now().Add(setTimeout); ; {
		// Without NLM_F_EXCL, destroying a set that does not exist succeeds.
		err := conn.Do(aboutSet(nl.IPSET_CMD_DESTROY, unix.NLM_F_EXCL, name), nil)
		if !errors.Is(err, unix.Errno(nl.IPSET_ERR_BUSY)) {
			return err
		}
		if time.Now().After(deadline) {
			return errSetBusy
		}
		select {
		case <-ctx.Done():
			return errSetBusy
		case <-time.After(setRetry):
		}
	}
}

// errSetBusy says that a rule refers to a set.
var errSetBusy = errors.New("a rule still refers to it")

func aboutSet(command, flags uint16, set string) []byte {
	b := nfnetlink.AppendNetfilterHeader(nil, unix.NFNL_SUBSYS_IPSET<<8|command, flags, unix.AF_INET, 0)
	b = nfnetlink.AppendAttr(b, nl.IPSET_ATTR_PROTOCOL, []byte{nl.IPSET_PROTOCOL})
	return nfnetlink.AppendAttr(b, nl.IPSET_ATTR_SETNAME, append([]byte(set), 0))
}

// nodePort is a port that an IPVS service of kube-proxy may have on any address of
// the node.
type nodePort struct {
	protocol uint8
	port     uint16
}

// nodePorts reads the node ports of IPVS mode from its sets.
func nodePorts(ctx context.Context) (map[nodePort]bool, error) {
	conn, err := nfnetlink.Dial(0)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	out := map[nodePort]bool{}
	for _, name := range proxySets() {
		protocol := nodePortProtocol(name)
		if protocol == 0 {
			continue
		}
		err := conn.Dump(ctx, aboutSet(nl.IPSET_CMD_LIST, 0, name), func(payload []byte) error {
			for _, port := range setPorts(payload[nfnetlink.GenHeaderLen:]) {
				out[nodePort{protocol, port}] = true
			}
			return nil
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("read the set %s: %w", name, err)
		}
	}
	return out, nil
}

// nodePortProtocol is the protocol of a set of node ports; 0 for other sets.
func nodePortProtocol(set string) uint8 {
	if !strings.Contains(set, "-NODE-PORT-") || strings.Contains(set, "HEALTH-CHECK") {
		return 0
	}
	for _, word := range strings.Split(set, "-") {
		switch word {
		case "TCP":
			return unix.IPPROTO_TCP
		case "UDP":
			return unix.IPPROTO_UDP
		case "SCTP":
			return unix.IPPROTO_SCTP
		}
	}
	return 0
}

// setPorts parses the ports in one message of a listing.
func setPorts(attrs []byte) (ports []uint16) {
	for typ, list := range nfnetlink.Attrs(attrs) {
		if typ != nl.IPSET_ATTR_ADT {
			continue
		}
		for _, element := range nfnetlink.Attrs(list) {
			for typ, v := range nfnetlink.Attrs(element) {
				if typ == nl.IPSET_ATTR_PORT && len(v) >= 2 {
					ports = append(ports, binary.BigEndian.Uint16(v))
				}
			}
		}
	}
	return ports
}
