// Package yamlsyntax says what is wrong with YAML, and in which line, in words that help those who wrote it.
package yamlsyntax

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

// Explain says what is wrong with a text that cannot be parsed, by the line and the reason that the
// parser gave.
func Explain(text []byte, line int, err error) Mistake {
	if strings.Contains(err.Error(), "cannot start any token") {
		if i := slices.IndexFunc(strings.Split(string(text), "\n"), indentedByTab); i >= 0 {
			return Mistake{i + 1, "the line is indented with a tab, which YAML does not allow", "indent it with spaces"}
		}
	}
	return Mistake{line, "it cannot be parsed: " + err.Error(), "correct the syntax there or above it: indentation, brackets or quotes"}
}

func indentedByTab(line string) bool {
	return strings.Contains(line[:len(line)-len(strings.TrimLeft(line, " \t"))], "\t")
}
