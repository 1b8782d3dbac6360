package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sluice/internal/spelling"
)

// remedyForField says what to do about a field that a type does not have: it may be
// misspelt, or indented as if it belonged elsewhere.
func remedyForField(object any, path string) string {
	parent, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, name = path[:i], path[i+1:]
	}
	of := typeAt(reflect.TypeOf(object), parent)
	fields := fieldsOf(of)
	if meant := spelling.Nearest(name, slices.Sorted(maps.Keys(fields))); meant != "" {
		return "did you mean " + meant + "?"
	}
	for _, below := range slices.Sorted(maps.Keys(fields)) {
		if fieldsOf(elem(fields[below]))[name] != nil {
			return fmt.Sprintf("it belongs below %s: indent it further", below)
		}
	}
	if above := parent[:max(0, strings.LastIndexByte(parent, '.'))]; parent != "" && fieldsOf(typeAt(reflect.TypeOf(object), above))[name] != nil {
		return "it belongs one level higher: indent it less"
	}
	return "remove the field or correct its name"
}

// typeAt returns the type of the field at a path, such as spec.ports[0]; nil if there
// is none.
func typeAt(t reflect.Type, path string) reflect.Type {
	t = elem(t)
	for part := range strings.SplitSeq(path, ".") {
		if part == "" {
			continue
		}
		name, _, _ := strings.Cut(part, "[")
		if t = fieldsOf(t)[name]; t == nil {
			return nil
		}
		t = elem(t)
	}
	return t
}

// elem returns what pointers and lists are of.
func elem(t reflect.Type) reflect.Type {
	for t != nil && (t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice) {
		t = t.Elem()
	}
	return t
}

// fieldsOf returns the types of the fields of a struct by their names in JSON, none of
// other types.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	if t == nil || t.Kind() != reflect.Struct {
		return out
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			maps.Copy(out, fieldsOf(elem(f.Type)))
		case name != "" && name != "-":
			out[name] = f.Type
		}
	}
	return out
}

// pathAt returns the path of the value of a JSON document that ends at an offset, with
// the indices that decoders leave out of their errors.
func pathAt(raw []byte, offset int64) (string, bool) {
	type level struct {
		list  bool
		index int
		key   string
		isKey bool // the next token of a mapping is a key
	}
	var stack []level
	path := func() string {
		var out strings.Builder
		for _, l := range stack {
			if l.list {
				fmt.Fprintf(&out, "[%d]", l.index)
			} else {
				out.WriteString("." + l.key)
			}
		}
		return strings.TrimPrefix(out.String(), ".")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	for {
		token, err := decoder.Token()
		if err != nil {
			return "", false
		}
		top := len(stack) - 1
		delim, isDelim := token.(json.Delim)
		switch {
		case isDelim && (delim == '}' || delim == ']'):
			stack = stack[:top]
			top--
		case top >= 0 && stack[top].isKey:
			stack[top].key, _ = token.(string)
			stack[top].isKey = false
			continue
		case isDelim:
			stack = append(stack, level{list: delim == '[', isKey: delim == '{'})
			continue
		}
		if decoder.InputOffset() >= offset {
			return path(), true
		}
		if top >= 0 { // a value is complete
			stack[top].isKey = !stack[top].list
			stack[top].index++
		}
	}
}

// complaint is what people can do with an error of the YAML parser.
type complaint struct {
	line           int // in the document, 0 if unknown
	reason, remedy string
}

// explainSyntax finds the mistake in a document that cannot be parsed. The parser
// notices most of them only some lines further down.
func explainSyntax(text []byte, line int, err error) complaint {
	c := complaint{line, "it cannot be parsed: " + err.Error(), "correct the syntax of the document"}
	lines := strings.Split(string(text), "\n")
	message := err.Error()
	switch {
	case strings.Contains(message, "cannot start any token"):
		if i := slices.IndexFunc(lines, indentedByTab); i >= 0 {
			return complaint{i + 1, "the line is indented with a tab, which YAML does not allow", "indent it with spaces"}
		}
	case strings.Contains(message, "',' or '}'"), strings.Contains(message, "',' or ']'"):
		if i := slices.IndexFunc(lines, unclosed); i >= 0 {
			return complaint{i + 1, fmt.Sprintf("a bracket is not closed in %q", strings.TrimSpace(lines[i])), "close each { with } and each [ with ]"}
		}
	case strings.Contains(message, "expected key"), strings.Contains(message, "mapping values"), strings.Contains(message, "expected '-' indicator"):
		if i, ok := misindented(lines); ok {
			return complaint{i + 1, fmt.Sprintf("the line %q is not indented like those around it", lines[i]),
				"indent it by as many spaces as the other fields of the same mapping"}
		}
	}
	return c
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
