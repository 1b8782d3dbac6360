package leftovers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"sluice/internal/nft"
)

// xtables is the legacy iptables of one family: rules that only its own
// programs can change, but whose chains anybody with the rights can see.
type xtables struct {
	family nft.Family
	// command is what its programs are called.
	command string
	// names is the file with the names of the tables that are there. To ask for
	// one that is not would create it.
	names string
	// domain and level are what a socket that knows the tables is made with and
	// asked by.
	domain, level int
}

var bothXtables = []xtables{
	{nft.IP, "iptables", "/proc/thread-self/net/ip_tables_names", unix.AF_INET, unix.SOL_IP},
	{nft.IP6, "ip6tables", "/proc/thread-self/net/ip6_tables_names", unix.AF_INET6, unix.SOL_IPV6},
}

// tables are the names of the tables that are there.
func (x *xtables) tables() ([]string, error) {
	text, err := os.ReadFile(x.names)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the tables of legacy %s: %w", x.command, err)
	}
	return strings.Fields(string(text)), nil
}

// What the kernel wants to be asked, the same for both families
// (linux/netfilter_ipv4/ip_tables.h).
const (
	getInfo    = 64 // IPT_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES

	tableNameLen = 32
	infoLen      = 84 // struct ipt_getinfo, whose last word is the size of the entries
	entriesAt    = 40 // struct ipt_get_entries, before the entries
)

// chains reads the names of a table's chains, the base chains apart.
func (x *xtables) chains(table string) ([]string, error) {
	fd, err := unix.Socket(x.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket to %s: %w", x.command, err)
	}
	defer unix.Close(fd)
	// A table may change between the two questions, and the second must have
	// the right size.
	for attempt := 1; ; attempt++ {
		blob, err := x.entries(fd, table)
		if err == nil {
			return chainsIn(blob), nil
		}
		if !errors.Is(err, unix.EAGAIN) || attempt == attempts {
			return nil, fmt.Errorf("read table %s of %s: %w", table, x.command, err)
		}
	}
}

func (x *xtables) entries(fd int, table string) ([]byte, error) {
	info := make([]byte, infoLen)
	copy(info[:tableNameLen-1], table)
	if err := getsockopt(fd, x.level, getInfo, info); err != nil {
		return nil, err
	}
	size := binary.NativeEndian.Uint32(info[infoLen-4:])
	blob := make([]byte, entriesAt+int(size))
	copy(blob[:tableNameLen-1], table)
	binary.NativeEndian.PutUint32(blob[tableNameLen:], size)
	if err := getsockopt(fd, x.level, getEntries, blob); err != nil {
		return nil, err
	}
	return blob[entriesAt:], nil
}

// getsockopt is the system call in full: the buffer holds the question, and
// then the answer.
func getsockopt(fd, level, option int, buf []byte) error {
	length := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// A chain begins with an entry whose target is called ERROR and has the chain's
// name as its data. The last entry of a table has ERROR there as well.
const (
	chainMark   = "ERROR\x00"
	chainNameAt = 30 // from the target's name to its data
)

// chainsIn finds the names of the chains in a table's entries.
func chainsIn(blob []byte) []string {
	var names []string
	for {
		at := bytes.Index(blob, []byte(chainMark))
		if at < 0 || len(blob) < at+chainNameAt {
			return names
		}
		blob = blob[at+chainNameAt:]
		if end := bytes.IndexByte(blob, 0); end > 0 && string(blob[:end+1]) != chainMark {
			names = append(names, string(blob[:end]))
		}
	}
}
