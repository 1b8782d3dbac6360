package output

import (
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// minWidth is that of terminals below which lines are not wrapped: nothing would help.
const minWidth = 40

// IsTerminal reports whether people read what is written.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// widthOf returns the columns of the terminal that w is, 0 if it is none.
func widthOf(w io.Writer) int {
	if !IsTerminal(w) {
		return 0
	}
	width, _, err := term.GetSize(int(w.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return width
}

// forTerminal makes a text easy to read on a terminal.
func forTerminal(text string, width int, colour bool) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		wrapped := line
		if width >= minWidth {
			wrapped = wrap(line, width)
		}
		if colour {
			wrapped = coloured(wrapped)
		}
		out.WriteString(wrapped)
	}
	return out.String()
}

// withColours is false if the user wants none, as many programs understand it.
func withColours() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

var (
	gaps   = regexp.MustCompile(`\S {2,}`)
	indent = regexp.MustCompile(`^ *`)
)

// wrap breaks a line between words, so that what follows stands below its text: that
// after a label, if it has one. Rows of a table stay as they are.
func wrap(line string, width int) string {
	rest := strings.TrimRight(line, "\n")
	between := gaps.FindAllStringIndex(rest, 2)
	if utf8.RuneCountInString(rest) <= width || len(between) > 1 {
		return line
	}
	margin := len(indent.FindString(rest)) + 2
	if len(between) == 1 {
		margin = between[0][1]
	}
	if margin > width/2 {
		return line
	}
	var out strings.Builder
	for utf8.RuneCountInString(rest) > width {
		at := breakAt(rest, margin, width)
		if at < 0 {
			break // a word that is longer than the line
		}
		out.WriteString(rest[:at] + "\n")
		rest = strings.Repeat(" ", margin) + strings.TrimLeft(rest[at:], " ")
	}
	out.WriteString(rest + "\n")
	return out.String()
}

// breakAt returns the last space of a line within the width and after the margin, or else
// the first one after it; -1 if there is none.
func breakAt(line string, margin, width int) int {
	found, column := -1, 0
	for i, c := range line {
		if column > width && found >= 0 {
			break
		}
		if c == ' ' && column > margin {
			found = i
			if column > width {
				break
			}
		}
		column++
	}
	return found
}

// The colours of terminals.
const (
	red    = "\x1b[1;31m"
	green  = "\x1b[1;32m"
	yellow = "\x1b[1;33m"
	bold   = "\x1b[1m"
	plain  = "\x1b[0m"
)

// colours are those of words in capitals, unlike names of objects, and of the label that
// readers look for.
var colours = map[string]string{
	"WORKS": green, "FINE": green,
	"REJECTED": red, "DROPPED": red, "REFUSED": red, "DOES NOT ANSWER": red, "FAILED": red, "FAILING": red,
	"NOT SERVING": red, "NOT CONNECTED": red, "NO ANSWER": red, "TODO": red,
	"WARNING": yellow, "WORKS FOR SOME": yellow, "SERVING THE PAST": yellow, "NOT YET": yellow, "UNKNOWN YET": yellow,
	"UNTOUCHED": yellow, "OUT OF DATE": yellow, "NOT ELIGIBLE": yellow, "NOTE": yellow,
	"what to do": bold,
}

// words finds them, the longest first: a part of one has no colour of its own.
var words = func() *regexp.Regexp {
	all := slices.SortedFunc(maps.Keys(colours), func(a, b string) int { return len(b) - len(a) })
	return regexp.MustCompile(`\b(` + strings.Join(all, "|") + `)\b`)
}()

func coloured(line string) string {
	return words.ReplaceAllStringFunc(line, func(word string) string { return colours[word] + word + plain })
}
