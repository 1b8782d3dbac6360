//go:build linux

package xtables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Family is the iptables of one IP family.
type Family struct {
	// Command is the name of its command.
	Command string
	// names is the file with the names of the tables that exist.
	names string
	// domain and level are of the socket and of its options.
	domain, level int
	// entryLen is the length of a rule before its matches, and offsetsAt the offset of
	// its length with them, and with its target.
	entryLen, offsetsAt int
	// addressLen is the length of an address, and flagsAt the offset of the flags of a rule
	// behind its protocol: one for goto, and others for conditions.
	addressLen, flagsAt  int
	gotoFlag, otherFlags byte
}

// The families.
var (
	IPv4 = &Family{"iptables", "/proc/thread-self/net/ip_tables_names", unix.AF_INET, unix.SOL_IP, 112, 88, 4, 2, 0x02, 0x01}
	IPv6 = &Family{"ip6tables", "/proc/thread-self/net/ip6_tables_names", unix.AF_INET6, unix.SOL_IPV6, 168, 140, 16, 3, 0x04, 0x02}
)

// Tables returns the names of the tables that exist. Info and Read create any other.
func (f *Family) Tables() ([]string, error) {
	text, err := os.ReadFile(f.names)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the tables of legacy %s: %w", f.Command, err)
	}
	return strings.Fields(string(text)), nil
}

// Socket reads tables.
type Socket struct {
	*Family
	fd int
}

// Open opens a socket.
func (f *Family) Open() (*Socket, error) {
	fd, err := unix.Socket(f.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket to %s: %w", f.Command, err)
	}
	return &Socket{f, fd}, nil
}

// Close closes the socket.
func (s *Socket) Close() error {
	fd := s.fd
	s.fd = -1 // the number may soon be that of another file
	return unix.Close(fd)
}

// Socket options, the same for both families (linux/netfilter_ipv4/ip_tables.h).
const (
	getInfo    = 64 // IPT_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES

	nameLen   = 32 // a table's name, with which both requests start
	entriesAt = 40 // struct ipt_get_entries, before the entries
)

// Info is the size of a table: struct ipt_getinfo behind the name.
type Info struct {
	ValidHooks uint32
	// Hooks and Underflows are the offsets of the first and last rule of each hook.
	Hooks, Underflows [5]uint32
	// Entries is their number, one for each rule and two for each chain, and Size their
	// length in bytes.
	Entries, Size uint32
}

// Info returns the size of a table.
func (s *Socket) Info(table string) (Info, error) {
	var info Info
	buf := request(table, nameLen+binary.Size(info))
	if err := s.ask(getInfo, buf); err != nil {
		return info, fmt.Errorf("ask for the state of table %s of %s: %w", table, s.Command, err)
	}
	_, err := binary.Decode(buf[nameLen:], binary.NativeEndian, &info)
	return info, err
}

// attempts is how often a table is read again because others changed it meanwhile.
const attempts = 5

// read reads a table in the kernel's layout.
func (s *Socket) read(table string) (Info, []byte, error) {
	// The second request must have the size that the first one returned.
	for attempt := 1; ; attempt++ {
		info, err := s.Info(table)
		if err != nil {
			return info, nil, err
		}
		blob, err := s.entries(table, info.Size)
		if err == nil {
			return info, blob, nil
		}
		if !errors.Is(err, unix.EAGAIN) || attempt == attempts {
			return info, nil, fmt.Errorf("read table %s of %s: %w", table, s.Command, err)
		}
	}
}

// Checksum hashes a table without its counters. It also shows changes that keep
// the size of the table.
func (s *Socket) Checksum(table string, seed maphash.Seed) (uint64, error) {
	_, blob, err := s.read(table)
	if err != nil {
		return 0, err
	}
	for at := 0; at+s.entryLen <= len(blob); {
		// Behind the offsets are internal fields and counters.
		clear(blob[at+s.offsetsAt+4 : at+s.entryLen])
		next := int(binary.NativeEndian.Uint16(blob[at+s.offsetsAt+2:]))
		if next == 0 {
			return 0, fmt.Errorf("read table %s of %s: %w", table, s.Command, errMalformed)
		}
		at += next
	}
	return maphash.Bytes(seed, blob), nil
}

func (s *Socket) entries(table string, size uint32) ([]byte, error) {
	buf := request(table, entriesAt+int(size))
	binary.NativeEndian.PutUint32(buf[nameLen:], size)
	err := s.ask(getEntries, buf)
	return buf[entriesAt:], err
}

// request has the name of a table, and room for the answer.
func request(table string, size int) []byte {
	buf := make([]byte, size)
	copy(buf[:nameLen-1], table)
	return buf
}

// ask is getsockopt with a buffer that holds the request, and then the answer.
func (s *Socket) ask(option int, buf []byte) error {
	length := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), uintptr(s.level), uintptr(option),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
