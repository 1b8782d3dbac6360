// Package yamlsyntax says what is wrong with YAML that cannot be parsed, in words that
// help those who wrote it: the parser notices most mistakes only some lines further down.
package yamlsyntax

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/base/printable"
)

// Mistake is what people can do with an error of the parser.
type Mistake struct {
	Line           int // in the text, from 1; 0 if unknown
	Reason, Remedy string
}

// parserError splits the message of the parser into line number and reason.
var parserError = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(?s:(.*))$`)

// Position returns the line that an error of the parser names, 0 for none, and its reason.
func Position(err error) (line int, reason error) {
	m := parserError.FindStringSubmatch(err.Error())
	line, _ = strconv.Atoi(m[1])
	return line, errors.New(m[2])
}

// Explain finds the mistake in a text that cannot be parsed, by the line and the reason that
// the parser gave.
func Explain(text []byte, line int, err error) Mistake {
	lines := strings.Split(string(text), "\n")
	message := err.Error()
	switch {
	case strings.Contains(message, "cannot start any token"):
		if i := slices.IndexFunc(lines, indentedByTab); i >= 0 {
			return Mistake{i + 1, "the line is indented with a tab, which YAML does not allow", "indent it with spaces"}
		}
	case strings.Contains(message, "',' or '}'"), strings.Contains(message, "',' or ']'"):
		if i := slices.IndexFunc(lines, unclosed); i >= 0 {
			return Mistake{i + 1, fmt.Sprintf("a bracket is not closed in %q", printable.Cut(strings.TrimSpace(lines[i]))), "close each { with } and each [ with ]"}
		}
	case strings.Contains(message, "expected key"), strings.Contains(message, "mapping values"), strings.Contains(message, "expected '-' indicator"):
		if i, ok := misindented(lines); ok {
			return Mistake{i + 1, fmt.Sprintf("the line %q is not indented like those around it", printable.Cut(lines[i])),
				"indent it by as many spaces as the other fields of the same mapping"}
		}
	}
	return Mistake{line, "it cannot be parsed: " + message, "correct the syntax of the document"}
}

func indentedByTab(line string) bool {
	return strings.Contains(line[:len(line)-len(strings.TrimLeft(line, " \t"))], "\t")
}

// unclosed reports whether a line opens a bracket that it does not close.
func unclosed(line string) bool {
	count := func(s string) int { return strings.Count(line, s) }
	return count("{") > count("}") || count("[") > count("]")
}

// misindented returns the first line whose indentation does not fit the lines above it.
func misindented(lines []string) (int, bool) {
	open := []int{} // the indentations of the mappings that are open
	complete := false
	for i, line := range lines {
		text := strings.TrimLeft(line, " ")
		if text == "" || text[0] == '#' || strings.HasPrefix(text, "---") {
			continue
		}
		indent := len(line) - len(text)
		for strings.HasPrefix(text, "- ") { // a field behind a dash is as far to the right as the next ones
			rest := strings.TrimLeft(text[1:], " ")
			if len(open) > 0 && complete && indent > open[len(open)-1] {
				return i, true
			}
			indent += len(text) - len(rest)
			text, complete = rest, false
		}
		for len(open) > 0 && indent < open[len(open)-1] {
			open = open[:len(open)-1]
			if len(open) == 0 || indent > open[len(open)-1] {
				return i, true
			}
		}
		switch {
		case len(open) == 0 || indent > open[len(open)-1]:
			if complete {
				return i, true
			}
			open = append(open, indent)
		}
		text = strings.TrimSpace(text)
		if strings.HasSuffix(text, "|") || strings.HasSuffix(text, ">") {
			return 0, false // a block of text follows, which may be indented at will
		}
		complete = !strings.HasSuffix(text, ":")
	}
	return 0, false
}
