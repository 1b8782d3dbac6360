package testkit

import (
	"net/netip"
	"os"
)

// Addrs parses addresses.
func Addrs(texts ...string) []netip.Addr { return each(netip.MustParseAddr, texts) }

// Prefixes parses CIDRs.
func Prefixes(texts ...string) []netip.Prefix { return each(netip.MustParsePrefix, texts) }

func each[T any](read func(string) T, texts []string) []T {
	var out []T
	for _, text := range texts {
		out = append(out, read(text))
	}
	return out
}

// Loopback returns a loopback address that only this process uses, so that
// ports do not collide. There is one for each number.
func Loopback(number byte) netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(1 + os.Getpid()>>8%200), byte(os.Getpid()), number})
}
