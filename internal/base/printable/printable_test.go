package printable

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestEscape(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain", "Service default/web: näher dran", "Service default/web: näher dran"},
		{"empty", "", ""},
		{"quotes and backslashes stay", `a "b" \n`, `a "b" \n`},
		{"line ends", "a\nb\r\n", `a\nb\r\n`},
		{"terminal escape", "\x1b[2Jgone", `\x1b[2Jgone`},
		{"C1 control", "a\u009bm", `a\u009bm`},
		{"delete and bell", "\x7f\a", `\x7f\a`},
		{"direction of writing", "abc\u202edcba", `abc\u202edcba`},
		{"no UTF-8", "a\xffb", `a\xffb`},
		{"line separator", "a\u2028b", `a\u2028b`},
		{"markup is no business of a terminal", "<b>&amp;</b>", "<b>&amp;</b>"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := Escape(test.in); got != test.want {
				t.Errorf("Escape(%q) is %q, want %q", test.in, got, test.want)
			}
		})
	}
}

func TestEscapeJSON(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"plain", "{\n\t\"a\": \"näher dran\"\r\n}", "{\n\t\"a\": \"näher dran\"\r\n}"},
		{"delete, C1 control and direction of writing", "\"\x7f\u009b\u202e\"", `"\u007f\u009b\u202e"`},
		{"beyond 16 bits", "\"\U000e0041\"", `"\udb40\udc41"`},
		{"no UTF-8", "\"a\xffb\"", `"a\ufffdb"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := EscapeJSON([]byte(test.in))
			if string(got) != test.want {
				t.Errorf("%q is written %q, want %q", test.in, got, test.want)
			}
			var before, after any
			if err := errors.Join(json.Unmarshal([]byte(test.in), &before), json.Unmarshal(got, &after)); err != nil || !reflect.DeepEqual(before, after) {
				t.Errorf("%v: it meant %q, and means %q", err, before, after)
			}
		})
	}
}

func TestLines(t *testing.T) {
	var p Lines
	p.Line("%s", "one\ntwo")
	p.Row(6, "who", "%d", 3)
	p.Row(6, "\x1b[2J", "trailing %s", "  ")
	var got strings.Builder
	if err := p.Write(&got); err != nil {
		t.Fatal(err)
	}
	if want := "one\\ntwo\nwho    3\n\\x1b[2J trailing\n"; got.String() != want {
		t.Errorf("the page is %q, want %q", got.String(), want)
	}
}

func TestDuration(t *testing.T) {
	tests := []struct {
		in   time.Duration
		want string
	}{
		{-time.Second, "0s"},
		{123456 * time.Nanosecond, "120µs"},
		{12345 * time.Microsecond, "12ms"},
		{12345 * time.Millisecond, "12.3s"},
		{3*time.Hour + 4*time.Minute + 5678*time.Millisecond, "3h4m6s"},
	}
	for _, test := range tests {
		if got := Duration(test.in); got != test.want {
			t.Errorf("%v is written %q, want %q", test.in, got, test.want)
		}
	}
}

func TestCountAndList(t *testing.T) {
	now := time.Unix(1000, 0)
	same := func(s string) string { return s }
	for _, test := range []struct{ got, want string }{
		{Count(1, "endpoint"), "1 endpoint"},
		{Count(0, "endpoint"), "0 endpoints"},
		{List(nil, same), ""},
		{List([]string{"a", "b"}, same), "a, b"},
		{List(strings.Split("abcdefghij", ""), same), "a, b, c, d, e, f, g, h, and 2 more"},
		{ListFirst([]string{"a", "b", "c"}, 2, "; ", same), "a; b; and 1 more"},
		{Attempts(3, now.Add(-time.Minute), now.Add(time.Second), now), "tried 3 times in 1m0s, next try in 1s"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

func TestCut(t *testing.T) {
	type word string
	long, wide := strings.Repeat("x", 300), strings.Repeat("ü", 150)
	for in, want := range map[string]string{"": "", "short": "short", long[:200]: long[:200], long: long[:200] + "…", wide: wide} {
		if got := Cut(in); got != want {
			t.Errorf("%.20q… becomes %q", in, got)
		}
	}
	args := []any{word(long), 5, "short", long}
	if got := fmt.Sprintf("%s %d %s %s", CutAll(args)...); got != long[:200]+"… 5 short "+long[:200]+"…" {
		t.Errorf("the arguments become %s", got)
	}
	if args[3] != long {
		t.Error("the arguments themselves are cut")
	}
}
