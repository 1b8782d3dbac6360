package nft

import "net/netip"

// LastAddr is the last address of a prefix: in a set, a prefix is the range from
// its first one to that.
func LastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// PrefixOf is the prefix with that first and last address, if there is one.
func PrefixOf(first, last netip.Addr) (netip.Prefix, bool) {
	for bits := range first.BitLen() + 1 {
		if p := netip.PrefixFrom(first, bits); p.IsValid() && p.Masked() == p && LastAddr(p) == last {
			return p, true
		}
	}
	return netip.Prefix{}, false
}
