package configtest

import (
	"math"
	"slices"
	"strconv"
	"time"
)

const (
	most    = math.MaxInt32
	period  = 30 * time.Second // between two syncs, by default
	forever = time.Duration(math.MaxInt64)
)

var (
	boolean  = Values{Accepted: []string{"true", "false", "1", "T"}, Refused: []string{"", "yes", "maybe"}, Odd: []string{`"true"`}}
	sizes    = Values{Accepted: []string{"0", "512", "4k", "1Mi"}, Refused: []string{"", "many"}, Odd: []string{"-1", `"0"`, "1.5"}}
	anything = texts("", "some-thing", " blank ", "UPPER")

	addresses = texts("", "0.0.0.0", "::", "10.0.0.1", "010.000.000.001", "::ffff:10.0.0.1", "fd00::1", "127.0.0.1", "0:0::0").except(
		"10.0.0.256", "[::1]", "localhost", "fe80::1%lo", " 10.0.0.1")
	endpoints = addresses.or("10.0.0.1:80", "0.0.0.0:10256", "127.0.0.1:1", "[::]:1", "[::1]:65535", "10.0.0.1:010", "10.0.0.1:+80", "010.0.0.1:1",
		"[10.0.0.1]:80", "::1:80", "[::ffff:10.0.0.1]:80").except(
		":10256", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:word", "10.0.0.1:", "localhost:1", "[fe80::1%lo]:80", "10.0.0.1:80:80")

	ranges = []string{"10.0.0.0/8", "fd00::/8", "10.0.0.0/8,fd00::/8", "fd00::/8,10.0.0.0/8", "10.1.2.3/8", "010.0.0.0/8", "::ffff:10.0.0.0/104", "::ffff:10.0.0.0/90",
		"10.0.0.0/0", "0.0.0.0/0,::/0", "10.0.0.0/08", "::/0"}
	// twoRanges are of the same family.
	twoRanges = []string{"10.0.0.0/8,11.0.0.0/8", "fd00::/8,fd01::/16", "10.0.0.0/8,fd00::/8,11.0.0.0/8", "10.0.0.0/8,::ffff:10.0.0.0/104"}
	noRanges  = []string{"10.0.0.0/8, fd00::/8", " 10.0.0.0/8", "10.0.0.0/8,", ",", ",10.0.0.0/8", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/-1",
		"/8", "word", " ", "10.0.0.0/8,word", "10.0.0.0/255.0.0.0", "fe80::%lo/64", "10.0.0/8"}

	// interfaces include impossible names, of which we only warn.
	interfaces = texts("br0", "cali", "a-name-that-is-longer-than-fifteen", "exactly-15-byte", "sixteen-bytes-xy", "with/slash", "with blank", "with:colon",
		"br+", "br*", ".", "..", "ü").except("")
)

func texts(accepted ...string) Values { return Values{kind: Text, Accepted: accepted} }
func lists(accepted ...string) Values { return Values{kind: List, Accepted: accepted} }

// or adds values that are accepted, and except adds some that are refused.
func (v Values) or(accepted ...string) Values {
	v.Accepted = slices.Concat(v.Accepted, accepted)
	return v
}

func (v Values) except(refused ...string) Values {
	v.Refused = slices.Concat(v.Refused, refused)
	return v
}

// numbers are those in a range, and others.
func numbers(low, high int64) Values {
	v := Values{Refused: []string{"", "1.5", "1e3", `"7"`, "word", "2147483648"}}
	for _, text := range []string{"0", "1", "-1", "31", "32", "0x10", "010", "1000", "1001", "-1000", "-1001", "2147483647", "-2147483648"} {
		n, err := strconv.ParseInt(text, 0, 64)
		v = v.sort(text, err == nil && low <= n && n <= high)
	}
	return v
}

// durations are those in a range, and others.
func durations(low, high time.Duration) Values {
	v := Values{Refused: []string{"", "1d", "5", "word", `"0"`, "10000000000s"}}
	for _, text := range []string{"0", "0s", "1ns", "-1ns", "1s", "-1s", "29s", "30s", "31s", "1h30m", "24h", "9000000000s"} {
		d, err := time.ParseDuration(text)
		v = v.sort(text, err == nil && low <= d && d <= high)
	}
	return v
}

func (v Values) sort(value string, accepted bool) Values {
	if accepted {
		return v.or(value)
	}
	return v.except(value)
}
