package manifest

import "sluice/internal/base/yamlsyntax"

// locator finds the lines of fields. It parses the document only when it is first
// used, so that documents without problems cost nothing.
type locator struct {
	doc    *document
	fields *yamlsyntax.Fields
}

// line returns the line of a field in the file, or of what is nearest around
// it, or 0 if the document cannot be parsed.
func (l *locator) line(path string) int {
	line := l.parse().Line(path)
	if line == 0 {
		return 0
	}
	return l.doc.line + line - 1
}

func (l *locator) parse() *yamlsyntax.Fields {
	if l.fields == nil {
		l.fields = yamlsyntax.Locate(l.doc.text)
	}
	return l.fields
}
