package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"sluice/internal/base/yamlsyntax"
)

// document is one document of a file.
type document struct {
	piece
	sum sum // of the text
	decoded
}

// piece is where a document is. A file may have very many.
type piece struct {
	number int    // from 1
	line   int    // its first line in the file, from 1
	text   []byte // until it is decoded
	json   bool   // known to be JSON
	cut    bool   // known to end too early
}

// split cuts the content of a file into its documents, by the file's
// extension. Documents that hold nothing but comments are left out.
func split(file string, data []byte) []piece {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if filepath.Ext(file) == ".json" {
		return splitJSON(data)
	}
	return splitYAML(data)
}

// splitYAML cuts at the lines that start or end a document, without parsing what is
// between them: a document that cannot be parsed must not harm the next one.
func splitYAML(data []byte) (docs []piece) {
	pos, line, start, startLine := 0, 0, 0, 1
	var content, directive bool
	flush := func(end int) {
		if content {
			docs = append(docs, piece{number: len(docs) + 1, line: startLine, text: data[start:end]})
		}
	}
	for text := range bytes.Lines(data) {
		line++
		switch {
		case marks(text, "..."):
			flush(pos)
			start, startLine = pos+len(text), line+1
			content, directive = false, false
		case marks(text, "---"):
			// A directive belongs to the document that starts below it.
			if !directive || content {
				flush(pos)
				start, startLine = pos, line
			}
			content, directive = holdsContent(text[3:]), false
		case text[0] == '%' && !content:
			directive = true
		case holdsContent(text):
			content = true
		}
		pos += len(text)
	}
	flush(len(data))
	return docs
}

// marks reports whether a line is a mark between documents.
func marks(line []byte, mark string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(mark))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

func holdsContent(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[0] != '#'
}

// splitJSON cuts between JSON values. What cannot be parsed is the last
// document, up to the end of the file.
func splitJSON(data []byte) (docs []piece) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	for pos, line := 0, 1; len(bytes.TrimSpace(data[pos:])) > 0; {
		end := len(data)
		var value json.RawMessage
		err := decoder.Decode(&value)
		if err == nil {
			end = int(decoder.InputOffset())
		}
		text := bytes.TrimLeft(data[pos:end], " \t\r\n")
		line += bytes.Count(data[pos:end-len(text)], []byte("\n"))
		docs = append(docs, piece{number: len(docs) + 1, line: line, text: text, json: true, cut: errors.Is(err, io.ErrUnexpectedEOF)})
		line += bytes.Count(text, []byte("\n"))
		pos = end
	}
	return docs
}

// toJSON returns the document as JSON, and whether keys may have got lost because
// they were repeated. If it fails, it returns the line in the document if known.
func (d *document) toJSON() (raw []byte, repeats bool, line int, err error) {
	text := bytes.TrimSpace(bytes.TrimPrefix(d.text, []byte("---")))
	if d.json || json.Valid(text) {
		return text, false, 0, nil
	}
	raw, err = yaml.YAMLToJSONStrict(d.text)
	if err != nil && strings.Contains(err.Error(), "already set in map") {
		// This is also said of a key that overrides one merged by <<.
		repeats = true
		raw, err = yaml.YAMLToJSON(d.text)
	}
	if err == nil && endsEarly(text) {
		err = errors.New("there is more behind the end of the document")
	}
	if err != nil {
		line, err = yamlsyntax.Position(err)
		return nil, false, line, err
	}
	return raw, repeats, 0, nil
}

// endsEarly reports whether a document ends before its text does, which the parser
// ignores. Only documents in braces, or with a directive further down, can.
func endsEarly(text []byte) bool {
	var first []byte
	for line := range bytes.Lines(text) {
		if first = line; holdsContent(line) {
			break
		}
	}
	if !bytes.ContainsAny(first, "{!&") && !bytes.Contains(text, []byte("\n%")) {
		return false
	}
	var node yamlv3.Node
	decoder := yamlv3.NewDecoder(bytes.NewReader(text))
	return decoder.Decode(&node) == nil && !errors.Is(decoder.Decode(&node), io.EOF)
}

// movedTo returns what a document holds at its new place in the file.
func (d *document) movedTo(next *document) decoded {
	out := d.decoded
	if d.number == next.number && d.line == next.line {
		return out
	}
	out.objects, out.problems = nil, slices.Clone(d.problems)
	for _, o := range d.objects {
		moved := *o
		moved.document, moved.line = next.number, next.line
		out.objects = append(out.objects, &moved)
	}
	for i := range out.problems {
		p := &out.problems[i]
		p.Document = next.number
		if p.Line > 0 {
			p.Line += next.line - d.line
		}
	}
	return out
}
