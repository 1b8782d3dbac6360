//go:build linux

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// ErrAbsent is the error of a kernel without IPVS, or where its module is not loaded.
var ErrAbsent = errors.New("the kernel has no IPVS, or its module ip_vs is not loaded")

// Refused are the commands of a Batch that the kernel refused. All others took effect.
type Refused []Refusal

// Refusal is a refused command.
type Refusal struct {
	Key Key // the virtual service that it is about
	Err error
}

func (r Refused) Error() string {
	if len(r) > 1 {
		return fmt.Sprintf("the kernel refused %d commands to IPVS, the first one about %s: %v", len(r), r[0].Key, r[0].Err)
	}
	return fmt.Sprintf("the kernel refused a command to IPVS about %s: %v", r[0].Key, r[0].Err)
}

// Unwrap returns the kernel's errors, for errors.Is.
func (r Refused) Unwrap() []error {
	errs := make([]error, len(r))
	for i := range r {
		errs[i] = r[i].Err
	}
	return errs
}

// Conn is a netlink socket to IPVS. It handles one request at a time.
type Conn struct {
	nl     *nfnetlink.Conn
	family uint16
	// commands counts those that were sent to change something.
	commands atomic.Uint64
}

const bufferSize = 4 << 20

// Dial opens a socket in a network namespace, given as an open file descriptor; 0 is
// the caller's own. The error is ErrAbsent if there is no IPVS.
func Dial(netns int) (_ *Conn, err error) {
	nl, err := nfnetlink.DialGeneric(netns)
	if err != nil {
		return nil, err
	}
	c := &Conn{nl: nl}
	defer func() {
		if err != nil {
			err = errors.Join(err, nl.Close())
		}
	}()
	if err := nl.ForceBuffers(bufferSize, bufferSize); err != nil {
		return nil, err
	}
	if err := c.findFamily(); err != nil {
		return nil, err
	}
	return c, nil
}

// findFamily asks for the number of the generic netlink family.
func (c *Conn) findFamily() error {
	name := nfnetlink.AppendAttr(nil, unix.CTRL_ATTR_FAMILY_NAME, []byte(familyName+"\x00"))
	msg := appendRequest(nil, unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, name)
	err := c.nl.Do(msg, withAttr(unix.CTRL_ATTR_FAMILY_ID, func(v value) { c.family = v.u16() }))
	if errors.Is(err, unix.ENOENT) {
		return ErrAbsent
	}
	if err != nil {
		return fmt.Errorf("finding IPVS: %w", err)
	}
	return nil
}

// withAttr calls f with the attributes of a type in an answer.
func withAttr(wanted uint16, f func(value)) func([]byte) error {
	return func(payload []byte) error {
		for typ, v := range nfnetlink.Attrs(payload[genHeaderLen:]) {
			if typ == wanted {
				f(v)
			}
		}
		return nil
	}
}

// Close closes the socket.
func (c *Conn) Close() error { return c.nl.Close() }

// Commands returns how many commands that change something were sent.
func (c *Conn) Commands() uint64 { return c.commands.Load() }

// Commit sends the commands of a batch, in their order. The error is a Refused if the
// kernel refused some of them. The batch cannot be used again.
func (c *Conn) Commit(ctx context.Context, b *Batch) error {
	var refused Refused
	for from := 0; from < b.Len(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := b.chunk(from)
		c.commands.Add(uint64(to - from))
		err := c.nl.Batch(b.messages(from, to, c.family), func(i int, err error) bool {
			if err != nil {
				refused = append(refused, Refusal{b.owners[from+i], err})
			}
			return false
		})
		if err != nil {
			return fmt.Errorf("sending %d commands to IPVS: %w", to-from, err)
		}
		from = to
	}
	if refused != nil {
		return refused
	}
	return nil
}

// Services returns all virtual services, including those of other programs.
func (c *Conn) Services(ctx context.Context) (list []Service, err error) {
	err = c.nl.Dump(ctx, appendRequest(nil, c.family, getService, nil), withAttr(attrService, func(v value) {
		list = append(list, decodeService(v))
	}))
	if err != nil {
		return nil, fmt.Errorf("listing the virtual services of IPVS: %w", err)
	}
	return list, nil
}

// Service returns one virtual service; ok is false if there is none.
func (c *Conn) Service(ctx context.Context, k Key) (s Service, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return Service{}, false, err
	}
	err = c.nl.Do(c.requestAbout(k, getService), withAttr(attrService, func(v value) { s, ok = decodeService(v), true }))
	if errors.Is(err, unix.ESRCH) {
		return Service{}, false, nil
	}
	if err != nil {
		return Service{}, false, fmt.Errorf("reading the virtual service %s: %w", k, err)
	}
	return s, ok, nil
}

// Destinations returns the destinations of a virtual service, none if there is no such
// service.
func (c *Conn) Destinations(ctx context.Context, k Key) (list []Destination, err error) {
	err = c.nl.Dump(ctx, c.requestAbout(k, getDest), withAttr(attrDest, func(v value) {
		list = append(list, decodeDest(v, familyOf(k.Addr)))
	}))
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("listing the destinations of %s: %w", k, err)
	}
	return list, nil
}

func (c *Conn) requestAbout(k Key, command uint8) []byte {
	return appendRequest(nil, c.family, command, nfnetlink.AppendAttr(nil, nfnetlink.Nested|attrService, encodeKey(k)))
}

// Timeouts are after how long without packets connections are forgotten. A zero stays
// as it is.
type Timeouts struct {
	TCP, TCPFIN, UDP time.Duration // TCPFIN is after the first FIN
}

// SetTimeouts sets the timeouts of the network namespace.
func (c *Conn) SetTimeouts(t Timeouts) error {
	var body []byte
	for _, a := range []struct {
		typ uint16
		d   time.Duration
	}{{attrTimeoutTCP, t.TCP}, {attrTimeoutFIN, t.TCPFIN}, {attrTimeoutUDP, t.UDP}} {
		if a.d > 0 {
			body = attr32(body, a.typ, uint32(a.d/time.Second))
		}
	}
	if body == nil {
		return nil
	}
	if err := c.nl.Do(appendRequest(nil, c.family, setConfig, body), nil); err != nil {
		return fmt.Errorf("setting the timeouts of IPVS: %w", err)
	}
	return nil
}

// Module is the kernel module of IPVS, and SchedulerModule that of a scheduler.
const Module = "ip_vs"

// SchedulerModule returns the kernel module of a scheduler.
func SchedulerModule(scheduler string) string { return Module + "_" + scheduler }

// LoadModule has the kernel load a module of IPVS, if it can be loaded and is not yet.
// It asks by the name of a network interface, for which the kernel runs modprobe, in the
// machine's own file system: a process with the capability SYS_MODULE needs neither
// commands nor modules in its container. Whether that worked shows when the module is
// used.
//
// The kernel would load a scheduler by itself for the first virtual service that uses
// it, but some kernels then wait forever if a network namespace is being removed.
func LoadModule(name string) error {
	if _, err := os.Stat(filepath.Join("/sys/module", name)); err == nil {
		return nil
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}
