package manifest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	sigsjson "sigs.k8s.io/json"

	"sluice/internal/model"
	"sluice/internal/source"
)

// object is one object of a manifest: its name, its place, and the events that
// make it known. An object that is not for this proxy has no events.
type object struct {
	kind     string
	name     model.Name
	document int
	line     int
	events   []model.Event
}

func (o *object) String() string { return describe(o.kind, o.name) }

// describe names an object as problems do.
func describe(kind string, name model.Name) string {
	switch {
	case name.Name == "":
		return kind
	case name.Namespace == "":
		return kind + " " + name.Name
	}
	return kind + " " + name.String()
}

// decoded is what a file or a document holds.
type decoded struct {
	objects  []object
	problems []Problem
	skipped  map[string]int // objects of other kinds, by kind
	traces   []trace        // of a file: its documents, in order
}

func (d *decoded) add(o decoded) {
	d.objects = append(d.objects, o.objects...)
	d.problems = append(d.problems, o.problems...)
	for kind, n := range o.skipped {
		d.skip(kind, n)
	}
}

func (d *decoded) skip(kind string, n int) {
	if d.skipped == nil {
		d.skipped = map[string]int{}
	}
	d.skipped[kind] += n
}

// refused tells whether anything was not taken over.
func (d *decoded) refused() bool {
	for i := range d.problems {
		if d.problems[i].Refused {
			return true
		}
	}
	return false
}

// Decode reads the content of one file: the events that make its objects known
// and what is wrong with it. An extension .json stands for JSON, everything
// else for YAML. Of Nodes, only nodeName is used. It does not look for objects
// that are there twice.
func Decode(file string, data []byte, nodeName string) ([]model.Event, []Problem) {
	d := decodeFile(file, data, nodeName, nil)
	var events []model.Event
	for _, o := range d.objects {
		events = append(events, o.events...)
	}
	return events, d.problems
}

// decodeFile decodes a file. Documents that its last contents had too, without
// a problem, are taken from there.
func decodeFile(file string, data []byte, nodeName string, last *contents) decoded {
	if bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data) {
		return decoded{problems: []Problem{fileProblem(file, "save it as text in UTF-8", "it is not a text file")}}
	}
	docs := split(file, data)
	results := make([]decoded, len(docs))
	all := decoded{traces: make([]trace, len(docs))}
	sound := last.sound()
	parallel(len(docs), func(i int) {
		text := textOf(docs[i])
		if before, ok := sound[text]; ok {
			results[i] = before.movedTo(docs[i])
		} else {
			d := decoder{file: file, doc: docs[i], nodeName: nodeName, lines: locator{doc: docs[i]}}
			d.decode()
			results[i] = d.decoded
		}
		if len(results[i].problems) == 0 {
			all.traces[i] = trace{text, results[i].skipped}
		}
	})
	for i := range results {
		all.add(results[i])
	}
	return all
}

// decoder decodes one document.
type decoder struct {
	decoded
	file     string
	doc      document
	nodeName string
	lines    locator
	repeated []string // fields that are there more than once and got lost
}

// head is the part of an object that says what it is.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
}

// item is an object and where it is in its document.
type item struct {
	head
	raw []byte
	at  string // path of the object, "items[3]." in a list
}

// name is the object's name, with the namespace it has by default.
func (i *item) name() model.Name {
	if i.Kind == "Node" || i.Kind == "ServiceCIDR" {
		return model.Name{Name: i.Metadata.Name}
	}
	name := model.Name{Namespace: i.Metadata.Namespace, Name: i.Metadata.Name}
	if name.Namespace == "" {
		name.Namespace = "default"
	}
	return name
}

func (d *decoder) decode() {
	raw, repeats, line, err := d.doc.toJSON()
	if err != nil {
		d.unreadable(line, err)
		return
	}
	if repeats {
		d.repeated = d.lines.repeated()
	}
	d.item(raw, "", head{})
}

// unreadable reports a document that is not well-formed. The line is that in
// the document, or 0.
func (d *decoder) unreadable(line int, err error) {
	if line > 0 {
		line += d.doc.line - 1
	}
	d.problems = append(d.problems, Problem{
		File: d.file, Document: d.doc.number, Line: line, Refused: true,
		Problem: model.Problem{
			Object: "document",
			Reason: "it cannot be parsed: " + err.Error(),
			Remedy: "correct the syntax of the document",
		},
	})
}

// item decodes an object or a list of objects. What the object does not say
// about itself is taken from defaults.
func (d *decoder) item(raw []byte, at string, defaults head) {
	it := item{raw: raw, at: at, head: defaults}
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(raw, &it.head); err != nil {
		if syntax, offset := sigsjson.SyntaxErrorOffset(err); syntax {
			d.unreadable(1+bytes.Count(raw[:min(int(offset), len(raw))], []byte("\n")), err)
			return
		}
		// A field of the wrong type is left to the strict decoder, which knows
		// the kind.
	}
	text := bytes.TrimSpace(raw)
	switch {
	case bytes.Equal(text, []byte("null")):
	case len(text) == 0 || text[0] != '{':
		d.refuse(&it, "", "write an object with apiVersion, kind and metadata", "it is not an object")
	case it.APIVersion == "":
		d.refuse(&it, "apiVersion", "set apiVersion", "apiVersion is missing")
	case it.Kind == "":
		d.refuse(&it, "kind", "set kind", "kind is missing")
	default:
		d.dispatch(&it)
	}
}

// parse decodes an object strictly and reports what does not belong there.
func (d *decoder) parse(it *item, into any) bool {
	check := d.check(it)
	for _, path := range d.repeated {
		if field, ok := strings.CutPrefix(path, it.at); ok && (it.at != "" || !strings.HasPrefix(field, "items[")) {
			check.repeated(field)
		}
	}
	strict, err := sigsjson.UnmarshalStrict(it.raw, into)
	for _, e := range strict {
		check.strict(it.Kind, e)
	}
	if err != nil {
		check.mistyped(err)
	}
	problems := check.List()
	d.report(it, problems, true)
	return len(problems) == 0
}

// check returns a checker with an empty report on an object.
func (d *decoder) check(it *item) checker {
	if it.Kind == "" {
		return checker{source.NewReport("document")}
	}
	return checker{source.NewReport(describe(it.Kind, it.name()))}
}

// refuse refuses an object because of one field.
func (d *decoder) refuse(it *item, field, remedy, reason string, args ...any) {
	check := d.check(it)
	check.Malformed(field, remedy, reason, args...)
	d.report(it, check.List(), true)
}

// use takes an object over, unless there is a problem because of which it is
// refused.
func (d *decoder) use(it *item, events []model.Event, problems []model.Problem) {
	refused := slices.ContainsFunc(problems, refuses)
	d.report(it, problems, refused)
	if !refused {
		d.objects = append(d.objects, object{kind: it.Kind, name: it.name(), document: d.doc.number, line: d.doc.line, events: events})
	}
}

// report adds their place to the problems of an object.
func (d *decoder) report(it *item, problems []model.Problem, refused bool) {
	for _, p := range problems {
		if it.at != "" {
			p.Field = strings.TrimSuffix(it.at+p.Field, ".")
		}
		d.problems = append(d.problems, Problem{
			File: d.file, Document: d.doc.number, Line: d.lines.line(p.Field), Refused: refused,
			Problem: p,
		})
	}
}

// wrongVersion reports an object of a kind that is used, in a version that is
// not.
func (d *decoder) wrongVersion(it *item, versions []string) {
	d.refuse(it, "apiVersion", "use apiVersion: "+strings.Join(versions, " or "),
		"%s is not served in version %q", it.Kind, it.APIVersion)
}

// itemPath is the path of an item of a list.
func itemPath(at string, i int) string { return fmt.Sprintf("%sitems[%d].", at, i) }
