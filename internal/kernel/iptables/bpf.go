package iptables

import (
	"fmt"
	"strings"

	"sluice/internal/base/inet"
)

// Instructions of the classic BPF machine (linux/filter.h).
const (
	bpfLoadWord  = 0x20 // A = the word at k
	bpfCopy      = 0x07 // X = A
	bpfJumpEqual = 0x1d // jump if A == X
	bpfReturn    = 0x06
)

// SameAddressBytecode is an argument of the match bpf that selects packets whose
// source address is their destination address.
func SameAddressBytecode(f inet.Family) string {
	if f == inet.IPv6 {
		return sameWords(8, 24, 4)
	}
	return sameWords(12, 16, 1)
}

// sameWords compares count words at two offsets of the network header.
func sameWords(source, destination, count int) string {
	var code [][4]int
	for i := range count {
		fail := 4*(count-i-1) + 1 // skips the rest of the comparisons and the success
		code = append(code,
			[4]int{bpfLoadWord, 0, 0, source + 4*i},
			[4]int{bpfCopy, 0, 0, 0},
			[4]int{bpfLoadWord, 0, 0, destination + 4*i},
			[4]int{bpfJumpEqual, 0, fail, 0})
	}
	code = append(code, [4]int{bpfReturn, 0, 0, 65535}, [4]int{bpfReturn, 0, 0, 0})
	var b strings.Builder
	fmt.Fprint(&b, len(code))
	for _, c := range code {
		fmt.Fprintf(&b, ",%d %d %d %d", c[0], c[1], c[2], c[3])
	}
	return b.String()
}
