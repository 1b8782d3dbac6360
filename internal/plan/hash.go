package plan

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// HashSeed is the seed of HashClient. It can never be another one: nodes with
// different seeds would send clients to different endpoints.
const HashSeed = 0x736c7563

// HashClient returns a number below n for a client. It is the kernel's jhash of
// the address, scaled as the kernel does, so that the same client gets the same
// number in the kernel and here. The client's port does not count.
func HashClient(client netip.Addr, n int) int {
	return int(uint64(jhash(client.AsSlice(), HashSeed)) * uint64(n) >> 32)
}

// jhash is Bob Jenkins' lookup3 as the kernel has it (linux/jhash.h), of a
// multiple of four bytes that is not empty.
func jhash(data []byte, seed uint32) uint32 {
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(data[4*i:]) }
	a := 0xdeadbeef + uint32(len(data)) + seed
	b, c := a, a
	for ; len(data) > 12; data = data[12:] {
		a, b, c = jhashMix(a+word(0), b+word(1), c+word(2))
	}
	switch len(data) {
	case 12:
		c += word(2)
		fallthrough
	case 8:
		b += word(1)
		fallthrough
	case 4:
		a += word(0)
	}
	return jhashFinal(a, b, c)
}

func jhashMix(a, b, c uint32) (uint32, uint32, uint32) {
	a -= c
	a ^= bits.RotateLeft32(c, 4)
	c += b
	b -= a
	b ^= bits.RotateLeft32(a, 6)
	a += c
	c -= b
	c ^= bits.RotateLeft32(b, 8)
	b += a
	a -= c
	a ^= bits.RotateLeft32(c, 16)
	c += b
	b -= a
	b ^= bits.RotateLeft32(a, 19)
	a += c
	c -= b
	c ^= bits.RotateLeft32(b, 4)
	b += a
	return a, b, c
}

func jhashFinal(a, b, c uint32) uint32 {
	c ^= b
	c -= bits.RotateLeft32(b, 14)
	a ^= c
	a -= bits.RotateLeft32(c, 11)
	b ^= a
	b -= bits.RotateLeft32(a, 25)
	c ^= b
	c -= bits.RotateLeft32(b, 16)
	a ^= c
	a -= bits.RotateLeft32(c, 4)
	b ^= a
	b -= bits.RotateLeft32(a, 14)
	c ^= b
	c -= bits.RotateLeft32(b, 24)
	return c
}
