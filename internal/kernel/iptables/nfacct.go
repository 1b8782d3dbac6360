package iptables

import (
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nfnetlink"
)

// Messages and attributes of nfacct (linux/netfilter/nfnetlink_acct.h).
const (
	acctNew = 0
	acctGet = 1

	acctName    = 1
	acctPackets = 2

	acctTimeout = 5 * time.Second
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
	err := acct(netns, acctGet, 0, name, func(payload []byte) {
		for typ, v := range nfnetlink.Attrs(payload) {
			if typ == acctPackets && len(v) == 8 {
				packets = binary.BigEndian.Uint64(v)
			}
		}
	})
	return packets, err
}

// acct sends one request, and calls f with the answer before its acknowledgement.
func acct(netns int, msg, flags uint16, name string, f func([]byte)) (err error) {
	s, err := nfnetlink.Dial(netns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	b := nfnetlink.AppendHeader(nil, unix.NFNL_SUBSYS_ACCT<<8|msg, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags, unix.AF_UNSPEC, 0)
	b = nfnetlink.AppendAttr(b, acctName, append([]byte(name), 0))
	nfnetlink.EndMessage(b, 0)
	if err := s.Send(b); err != nil {
		return err
	}
	if err := s.SetReadDeadline(time.Now().Add(acctTimeout)); err != nil {
		return err
	}
	for done := false; !done; {
		err := s.Receive(func(h nfnetlink.Header, payload []byte) error {
			if h.Type == unix.NLMSG_ERROR {
				done = true
				return nfnetlink.AckError(h, payload)
			}
			if f != nil && len(payload) >= nfnetlink.GenHeaderLen {
				f(payload[nfnetlink.GenHeaderLen:])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
