// Package printable makes text that others chose fit for a terminal or a log
// line: names of objects, reasons of errors, whatever came from outside.
package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape returns text with everything escaped that is no visible character or
// space: line ends, terminal escapes, marks that change the direction of
// writing, bytes that are no UTF-8. What is harmless comes back as it is.
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

// hidden tells whether a character cannot be shown as it is. What takes the
// place of bytes that are no UTF-8 counts: it may be such bytes.
func hidden(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
