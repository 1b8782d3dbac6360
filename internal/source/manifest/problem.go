package manifest

import (
	"fmt"

	"sluice/internal/model"
)

// Problem is something wrong with a manifest, and where.
type Problem struct {
	File     string // relative to the folder
	Document int    // from 1, empty documents are not counted; 0 if it is about the file
	Line     int    // in the file, from 1; 0 if unknown
	// Refused says that the document or file was not taken over. Otherwise the
	// object is in use without the field.
	Refused bool
	model.Problem
}

func (p Problem) String() string { return p.place() + ": " + p.Problem.String() }

// place is where in the files the problem is.
func (p Problem) place() string {
	place := p.File
	if p.Document > 0 {
		place += fmt.Sprintf(": document %d", p.Document)
	}
	if p.Line > 0 {
		place += fmt.Sprintf(", line %d", p.Line)
	}
	return place
}

// refused are the problems of what was not taken over. What is left out of objects
// that are in use goes with them.
func refused(problems []Problem) []model.Problem {
	var out []model.Problem
	for _, p := range problems {
		if p.Refused {
			told := p.Problem
			told.Reason = p.place() + ": " + p.Reason
			out = append(out, told)
		}
	}
	return out
}

// keysAndValues is the problem for a structured log.
func (p Problem) keysAndValues() []any {
	return []any{
		"file", p.File, "document", p.Document, "line", p.Line,
		"object", p.Object, "field", p.Field, "reason", p.Reason, "remedy", p.Remedy,
	}
}

// fileProblem is a problem of a file as a whole.
func fileProblem(file, remedy, reason string, args ...any) Problem {
	return Problem{File: file, Refused: true, Problem: model.Problem{
		Object: "file " + file,
		Reason: fmt.Sprintf(reason, args...),
		Remedy: remedy,
	}}
}
