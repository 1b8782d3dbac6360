package iptables

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// Messages and attributes of nfacct (linux/netfilter/nfnetlink_acct.h).
const (
	acctNew = 0
	acctGet = 1

	acctName    = 1
	acctPackets = 2
)

// createCounter creates an nfacct counter unless it exists.
func createCounter(netns int, name string) error {
	err := acct(netns, acctNew, unix.NLM_F_CREATE|unix.NLM_F_EXCL, name, nil)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// ReadCounter returns the number of packets of an nfacct counter.
func ReadCounter(netns int, name string) (uint64, error) {
	var packets uint64
	err := acct(netns, acctGet, 0, name, func(payload []byte) error {
		for typ, v := range nfnetlink.Attrs(payload[nfnetlink.GenHeaderLen:]) {
			if typ == acctPackets && len(v) == 8 {
				packets = binary.BigEndian.Uint64(v)
			}
		}
		return nil
	})
	return packets, err
}

// acct sends one request, and calls f, unless it is nil, with the answer.
func acct(netns int, msg, flags uint16, name string, f func([]byte) error) (err error) {
	c, err := nfnetlink.Dial(netns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	b := nfnetlink.AppendNetfilterHeader(nil, unix.NFNL_SUBSYS_ACCT<<8|msg, flags, unix.AF_UNSPEC, 0)
	return c.Do(nfnetlink.AppendAttr(b, acctName, append([]byte(name), 0)), f)
}
