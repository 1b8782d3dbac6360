package manifest

import (
	"fmt"

	"sluice/internal/model"
)

// Problem is a problem of a manifest and its place.
type Problem struct {
	File     string // relative to the directory
	Document int    // from 1, not counting empty documents; 0 if it is about the file
	Line     int    // in the file, from 1; 0 if unknown
	Refused  bool   // the document or file is not used; otherwise only the field is not
	model.Problem
}

func (p Problem) String() string { return p.Place() + ": " + p.Problem.String() }

// Place returns where in the files the problem is.
func (p Problem) Place() string {
	place := p.File
	if p.Document > 0 {
		place += fmt.Sprintf(": document %d", p.Document)
	}
	if p.Line > 0 {
		place += fmt.Sprintf(", line %d", p.Line)
	}
	return place
}

// Placed returns the problem with its place in the reason, as it is reported to the engine.
func (p Problem) Placed() model.Problem {
	placed := p.Problem
	placed.Reason = p.Place() + ": " + p.Reason
	return placed
}

// Refused returns the problems because of which something is not used, with their places. Those of
// objects in use are reported with the objects.
func Refused(problems []Problem) []model.Problem {
	var out []model.Problem
	for _, p := range problems {
		if p.Refused {
			out = append(out, p.Placed())
		}
	}
	return out
}

// keysAndValues returns the problem for a structured log.
func (p Problem) keysAndValues() []any {
	out := []any{"file", p.File}
	if p.Document > 0 {
		out = append(out, "document", p.Document)
	}
	if p.Line > 0 {
		out = append(out, "line", p.Line)
	}
	out = append(out, "object", p.Object.String())
	if p.Field != "" {
		out = append(out, "field", p.Field)
	}
	return append(out, "reason", p.Reason, "remedy", p.Remedy)
}

// fileProblem returns a problem of a file as a whole.
func fileProblem(file, remedy, reason string, args ...any) Problem {
	return Problem{File: file, Refused: true, Problem: model.Problem{
		Object: model.Object{Kind: "file", Name: file},
		Reason: fmt.Sprintf(reason, args...),
		Remedy: remedy,
	}}
}
