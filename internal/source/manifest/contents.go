package manifest

import (
	"crypto/sha256"
	"slices"
)

// contents are the objects that a file holds.
type contents struct {
	file     string // its name
	objects  []object
	traces   []trace
	replaced bool // by others, or by none
}

// trace is what remains of a document to know it again. It is empty if
// something was wrong with the document.
type trace struct {
	text    text
	skipped map[string]int
}

// text is a hash of a document's text.
type text [16]byte

func textOf(doc document) text {
	sum := sha256.Sum256(doc.text)
	return text(sum[:len(text{})])
}

// sound returns the documents that mean the same wherever in the file they are:
// those without problems, for a problem tells its place.
func (c *contents) sound() map[text]decoded {
	if c == nil {
		return nil
	}
	out := make(map[text]decoded, len(c.traces))
	rest := c.objects
	for i, t := range c.traces {
		n := 0
		for n < len(rest) && rest[n].document == i+1 {
			n++
		}
		if t.text != (text{}) {
			out[t.text] = decoded{objects: rest[:n], skipped: t.skipped}
		}
		rest = rest[n:]
	}
	return out
}

// movedTo is a sound document at another place.
func (d decoded) movedTo(doc document) decoded {
	d.objects = slices.Clone(d.objects)
	for i := range d.objects {
		d.objects[i].document, d.objects[i].line = doc.number, doc.line
	}
	return d
}
