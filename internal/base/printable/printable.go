// Package printable formats text for people, and makes untrusted text safe for a
// terminal or a log line: names of objects, error messages, anything from outside.
package printable

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Escape returns text with everything escaped that is not a printable character
// or space: newlines, terminal escapes, bidirectional control characters,
// invalid UTF-8. Harmless text is returned unchanged.
func Escape(text string) string {
	at := strings.IndexFunc(text, hidden)
	if at < 0 {
		return text
	}
	var b strings.Builder
	b.WriteString(text[:at])
	for rest := text[at:]; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if hidden(r) {
			quoted := strconv.QuoteToASCII(rest[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(rest[:size])
		}
		rest = rest[size:]
	}
	return b.String()
}

// EscapeJSON does the same with valid JSON, which means the same afterwards.
func EscapeJSON(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if hidden(r) && r != '\n' && r != '\t' && r != '\r' { // between values; in strings, JSON has none
			for _, unit := range utf16.AppendRune(nil, r) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		} else {
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}

// hidden reports whether a character must be escaped. The replacement character
// is, since it may stand for invalid UTF-8.
func hidden(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// Sentence returns a text that begins with a capital letter.
func Sentence(text string) string {
	r, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return text
	}
	return string(unicode.ToUpper(r)) + text[size:]
}

// maxText is how many characters are shown of a text that others wrote.
const maxText = 200

// Cut returns text of others that is short enough to be shown.
func Cut(text string) string { return CutAt(text, maxText) }

// CutAt returns at most that many characters of a text, with a mark if there are more.
func CutAt(text string, most int) string {
	if len(text) <= most {
		return text
	}
	n := 0
	for at := range text {
		if n == most {
			return text[:at] + "…"
		}
		n++
	}
	return text
}

// CutAll returns arguments for a format in which all strings, of whatever type, are cut.
func CutAll(args []any) []any {
	out := slices.Clone(args)
	for i, a := range out {
		if v := reflect.ValueOf(a); v.Kind() == reflect.String && v.Len() > maxText {
			out[i] = Cut(v.String())
		}
	}
	return out
}

// maxListed is how many items List names.
const maxListed = 8

// Count is a number and its noun, as "1 endpoint" or "2 endpoints".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// List joins the first few of items with commas, and counts the others.
func List[T any](items []T, text func(T) string) string {
	return ListFirst(items, maxListed, ", ", text)
}

// ListFirst joins at most that many items with a separator, and counts the others.
func ListFirst[T any](items []T, most int, separator string, text func(T) string) string {
	var words []string
	for _, item := range items[:min(len(items), most)] {
		words = append(words, text(item))
	}
	if more := len(items) - most; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, separator)
}

// Attempts describes what has failed since a time and is retried.
func Attempts(n int, since, retry, now time.Time) string {
	return fmt.Sprintf("tried %s in %s, next try in %s", Count(n, "time"), Duration(now.Sub(since)), Duration(retry.Sub(now)))
}

// Duration formats a duration with few digits, a negative one as 0s.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
