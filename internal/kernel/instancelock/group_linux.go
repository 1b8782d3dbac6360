package instancelock

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// group is the NFLOG group that whoever programs the network namespace is bound to. The
// kernel binds a group to one netlink socket at a time, in each network namespace, lets only
// those who may program it bind one, and frees it when the socket is closed, however its
// process ends. No rule shows it or is needed for it.
//
// A named proxy has a group of those from firstNamed on. Should two names have the same, the
// second proxy waits for the first.
const (
	group      = 20942
	firstNamed = 1 << 15
)

func (n Name) group() uint16 {
	if n == "" {
		return group
	}
	hash := fnv.New32a()
	_, _ = io.WriteString(hash, string(n)) // it takes everything
	return firstNamed + uint16(hash.Sum32()%firstNamed)
}

// Messages and commands of NFLOG, linux/netfilter/nfnetlink_log.h.
const (
	logPacket  = unix.NFNL_SUBSYS_ULOG << 8 // only the kernel sends these
	logConfig  = unix.NFNL_SUBSYS_ULOG<<8 | 1
	configCmd  = 1
	commandSet = 1 // bind
)

// errNoGroups is why groups are not used: this process lacks the right to bind them, as in
// the sandbox, or the kernel has none.
var errNoGroups = errors.New("NFLOG groups are not available")

// enotsupp is how the kernel refuses what only it may send. unix has no name for it.
const enotsupp = unix.Errno(524)

// groupSocket is a socket that can be bound to a group.
type groupSocket struct {
	*nfnetlink.Conn
	group uint16
}

// openGroup returns a socket that is not bound yet, or errNoGroups.
func (n Name) openGroup() (groupSocket, error) {
	conn, err := nfnetlink.Dial(0)
	if err != nil {
		return groupSocket{}, err
	}
	g := groupSocket{conn, n.group()}
	// That the group has another owner, and that nobody may bind it, is the same error.
	if err := g.request(logPacket, nil); !errors.Is(err, enotsupp) {
		return groupSocket{}, errors.Join(errNoGroups, err, g.Close())
	}
	return g, nil
}

// bind binds the group, unless another socket is bound to it.
func (g groupSocket) bind() (bound bool, err error) {
	err = g.request(logConfig, nfnetlink.AppendAttr(nil, configCmd, []byte{commandSet}))
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	return err == nil, err
}

// taken reports whether another socket is bound to the group.
func (g groupSocket) taken() bool {
	return errors.Is(g.request(logConfig, nil), unix.EPERM) // it would be ENODEV
}

// request sends a message about the group and returns the kernel's answer.
func (g groupSocket) request(typ uint16, attrs []byte) error {
	message := append(nfnetlink.AppendNetfilterHeader(nil, typ, 0, unix.AF_UNSPEC, g.group), attrs...)
	if err := g.Do(message, nil); err != nil {
		return fmt.Errorf("ask for NFLOG group %d: %w", g.group, err)
	}
	return nil
}
