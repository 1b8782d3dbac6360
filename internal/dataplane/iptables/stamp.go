package iptables

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"sluice/internal/model"
	"sluice/internal/nft"
)

// stamp is by what one sees, without listing, that somebody wrote.
type stamp struct {
	generation uint32 // of nftables
	// tables are what legacy tells of its tables: how many entries there are and
	// where each hook begins.
	tables [4]string
}

// stamper reads stamps.
type stamper interface {
	stamp(context.Context) (stamp, error)
	// expected is the stamp after an input, if nobody else writes.
	expected(before stamp, t Table, entries int) stamp
	Close() error
}

func newStamper(v Variant, netns int, families []model.Family) (stamper, error) {
	if v == NFT {
		conn, err := nft.Dial(netns)
		if err != nil {
			return nil, err
		}
		return nftStamper{conn}, nil
	}
	s := &legacyStamper{sockets: map[model.Family]int{}}
	return s, s.open(netns, families)
}

type nftStamper struct{ *nft.Conn }

func (s nftStamper) stamp(ctx context.Context) (stamp, error) {
	generation, err := s.Generation(ctx)
	return stamp{generation: generation}, err
}

// expected counts our transaction.
func (s nftStamper) expected(before stamp, _ Table, _ int) stamp {
	before.generation++
	return before
}

// legacyStamper asks the kernel about its tables, through a socket of each
// family.
type legacyStamper struct {
	sockets map[model.Family]int
}

func (s *legacyStamper) open(netns int, families []model.Family) error {
	domains := map[model.Family]int{model.IPv4: unix.AF_INET, model.IPv6: unix.AF_INET6}
	return inNetNS(netns, func() error {
		for _, f := range families {
			fd, err := unix.Socket(domains[f], unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
			if err != nil {
				return errors.Join(fmt.Errorf("open a socket to %s: %w", words[f].command, err), s.Close())
			}
			s.sockets[f] = fd
		}
		return nil
	})
}

func (s *legacyStamper) Close() error {
	var errs []error
	for _, fd := range s.sockets {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}

// watched are the tables that stamps are of; our only chain in mangle is empty.
var watched = [...]Table{{model.IPv4, nat}, {model.IPv4, filter}, {model.IPv6, nat}, {model.IPv6, filter}}

func (s *legacyStamper) stamp(context.Context) (stamp, error) {
	var out stamp
	for i, t := range watched {
		if _, open := s.sockets[t.Family]; !open {
			continue
		}
		info, err := s.info(t)
		if err != nil {
			return out, fmt.Errorf("ask for the state of table %s: %w", t, err)
		}
		out.tables[i] = info
	}
	return out, nil
}

// struct ipt_getinfo (linux/netfilter_ipv4/ip_tables.h), the same for IPv6: the
// table's name, its hooks, and how many entries and bytes there are.
const (
	getInfo   = 64 // IPT_SO_GET_INFO and IP6T_SO_GET_INFO
	infoLen   = 84
	infoName  = 32
	entriesAt = infoLen - 8
)

// info asks for the state of a table, which makes it if it is not there.
func (s *legacyStamper) info(t Table) (string, error) {
	level := unix.SOL_IP
	if t.Family == model.IPv6 {
		level = unix.SOL_IPV6
	}
	buf := make([]byte, infoLen)
	copy(buf[:infoName-1], t.Name)
	length := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.sockets[t.Family]), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return "", errno
	}
	return string(buf[infoName:]), nil
}

// expected has the number of entries that an input leads to. What else is in
// the state cannot be foreseen.
func (s *legacyStamper) expected(before stamp, t Table, entries int) stamp {
	for i, w := range watched {
		if w == t {
			b := []byte(before.tables[i])
			at := b[entriesAt-infoName:]
			binary.NativeEndian.PutUint32(at, binary.NativeEndian.Uint32(at)+uint32(entries))
			before.tables[i] = string(b)
		}
	}
	return before
}

// sameCounts tells whether two stamps agree in what expected foresees.
func (s stamp) sameCounts(o stamp) bool {
	for i := range s.tables {
		if s.entries(i) != o.entries(i) {
			return false
		}
	}
	return s.generation == o.generation
}

func (s stamp) entries(i int) string {
	if len(s.tables[i]) < infoLen-infoName {
		return ""
	}
	return s.tables[i][entriesAt-infoName:][:4]
}
