// Package printable formats text for people, and makes untrusted text safe for a
// terminal or a log line: names of objects, error messages, anything from outside.
package printable

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
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
