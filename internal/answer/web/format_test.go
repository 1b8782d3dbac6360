package web

import (
	"testing"
	"time"
)

func TestNumbersAndTimesAreShort(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{count(0), "0"}, {count(-1), "0"}, {count(999), "999"}, {count(1000), "1\u202f000"}, {count(uint64(12345678)), "12\u202f345\u202f678"},
		{perSecond(0, false), "–"}, {perSecond(0, true), "0"}, {perSecond(0.04, true), "< 0.1"}, {perSecond(1.26, true), "1.3"}, {perSecond(1234.5, true), "1\u202f235"},
		{duration(-time.Second), "0 s"}, {duration(59 * time.Second), "59 s"}, {duration(90 * time.Second), "90 s"}, {duration(5 * time.Minute), "5 min"},
		{duration(3 * time.Hour), "3 h"}, {duration(73 * time.Hour), "3 days"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}
