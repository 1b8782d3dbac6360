package leftovers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"sluice/internal/nfnetlink"
)

// ipvsLink has the addresses of all IPVS services but those of node ports.
const ipvsLink = "kube-ipvs0"

// removeIPVS removes the services of upstream's IPVS mode, the link with their
// addresses, and its sets. The link and the sets identify the services of kube-proxy,
// so they are removed last.
func removeIPVS(ctx context.Context, log logr.Logger) error {
	if err := removeVirtualServices(log); err != nil {
		return err
	}
	return errors.Join(removeLink(log), destroySets(ctx, log))
}

func removeLink(log logr.Logger) error {
	link, err := proxyLink()
	if err != nil || link == nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("remove the link %s: %w", ipvsLink, err)
	}
	log.Info("Removed the link of an earlier kube-proxy", "link", ipvsLink)
	return nil
}

// proxyLink returns the link of IPVS mode; nil if there is none.
func proxyLink() (netlink.Link, error) {
	link, err := netlink.LinkByName(ipvsLink)
	var none netlink.LinkNotFoundError
	if errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the link %s: %w", ipvsLink, err)
	}
	return link, nil
}

// ipvsFile exists if IPVS is loaded. A netlink request could load it.
const ipvsFile = "/proc/thread-self/net/ip_vs"

func removeVirtualServices(log logr.Logger) error {
	if _, err := os.Stat(ipvsFile); err != nil {
		return nil
	}
	link, err := proxyLink()
	if err != nil || link == nil {
		return err // without the link there are no services of kube-proxy
	}
	addresses, err := linkAddresses(link)
	if err != nil {
		return err
	}
	ports, err := nodePorts()
	if err != nil {
		return err
	}
	family, err := netlink.GenlFamilyGet("IPVS")
	if err != nil {
		return fmt.Errorf("find IPVS: %w", err)
	}
	services, err := virtualServices(family.ID)
	if err != nil {
		return err
	}
	removed := 0
	for _, s := range services {
		if !s.ofKubeProxy(addresses, ports) {
			continue
		}
		if err := s.remove(family.ID); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove the IPVS service %s: %w", s, err)
		}
		removed++
	}
	if removed > 0 {
		log.Info("Removed the IPVS services of an earlier kube-proxy", "services", removed)
	}
	return nil
}

func linkAddresses(link netlink.Link) (map[netip.Addr]bool, error) {
	list, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", ipvsLink, err)
	}
	out := map[netip.Addr]bool{}
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			out[ip.Unmap()] = true
		}
	}
	return out, nil
}

// Numbers of IPVS (linux/ip_vs.h).
const (
	ipvsVersion    = 1
	ipvsDelService = 3
	ipvsGetService = 4

	ipvsService = 1 // attribute of a command

	serviceFamily   = 1 // attributes of a service
	serviceProtocol = 2
	serviceAddress  = 3
	servicePort     = 4
)

// virtualService is a service of IPVS; one without an address is selected by a mark.
type virtualService struct {
	address  netip.Addr
	protocol uint8
	port     uint16
	key      []byte // the attributes that identify it
}

func (s *virtualService) String() string {
	return fmt.Sprintf("%v protocol %d", netip.AddrPortFrom(s.address, s.port), s.protocol)
}

// ofKubeProxy reports whether kube-proxy created the service: its address is on the
// link, or its port is a node port.
func (s *virtualService) ofKubeProxy(addresses map[netip.Addr]bool, ports map[nodePort]bool) bool {
	return s.address.IsValid() && (addresses[s.address] || ports[nodePort{s.protocol, s.port}])
}

func virtualServices(family uint16) ([]*virtualService, error) {
	req := nl.NewNetlinkRequest(int(family), unix.NLM_F_DUMP)
	req.AddData(&nl.Genlmsg{Command: ipvsGetService, Version: ipvsVersion})
	messages, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, fmt.Errorf("list the IPVS services: %w", err)
	}
	var out []*virtualService
	for _, m := range messages {
		if len(m) < nl.SizeofGenlmsg {
			return nil, fmt.Errorf("list the IPVS services: %w", nfnetlink.ErrMalformed)
		}
		for typ, v := range nfnetlink.Attrs(m[nl.SizeofGenlmsg:]) {
			if typ == ipvsService {
				out = append(out, parseVirtualService(v))
			}
		}
	}
	return out, nil
}

func parseVirtualService(b []byte) *virtualService {
	s := &virtualService{}
	var family uint16
	var address []byte
	for typ, v := range nfnetlink.Attrs(b) {
		switch {
		case typ == serviceFamily && len(v) >= 2:
			family = binary.NativeEndian.Uint16(v)
		case typ == serviceProtocol && len(v) >= 2:
			s.protocol = uint8(binary.NativeEndian.Uint16(v))
		case typ == serviceAddress && len(v) >= 16:
			address = v
		case typ == servicePort && len(v) >= 2:
			s.port = binary.BigEndian.Uint16(v)
		default:
			continue
		}
		s.key = nfnetlink.AppendAttr(s.key, typ, v)
	}
	switch {
	case address == nil:
	case family == unix.AF_INET:
		s.address = netip.AddrFrom4([4]byte(address))
	case family == unix.AF_INET6:
		s.address = netip.AddrFrom16([16]byte(address))
	}
	return s
}

func (s *virtualService) remove(family uint16) error {
	req := nl.NewNetlinkRequest(int(family), unix.NLM_F_ACK)
	req.AddData(&nl.Genlmsg{Command: ipvsDelService, Version: ipvsVersion})
	req.AddData(nl.NewRtAttr(ipvsService|unix.NLA_F_NESTED, s.key))
	_, err := req.Execute(unix.NETLINK_GENERIC, 0)
	return err
}
