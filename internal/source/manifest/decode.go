package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsjson "sigs.k8s.io/json"

	"sluice/internal/base/printable"
	"sluice/internal/base/spelling"
	"sluice/internal/base/yamlsyntax"
	"sluice/internal/model"
	"sluice/internal/source"
)

// decoded holds the content of a file or a document.
type decoded struct {
	objects   []*object
	problems  []Problem
	skipped   []string   // the kinds of other objects
	documents []document // of a file
}

// decodeFile decodes the content of a file. An extension .json stands for JSON,
// everything else for YAML. It is for a proxy. Documents that the
// file had before are not decoded again.
func decodeFile(name string, data []byte, proxy source.Proxy, last *file) (all decoded) {
	if bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data) {
		return decoded{problems: []Problem{fileProblem(name, "save it as text in UTF-8", "it is not a text file")}}
	}
	known := map[sum]*document{}
	if last != nil {
		for i := range last.documents {
			known[last.documents[i].sum] = &last.documents[i]
		}
	}
	pieces := split(name, data)
	if n := len(pieces); n > maxDocuments {
		return decoded{problems: []Problem{fileProblem(name, "split it into several files", "it has %d documents, and at most %d are read", n, maxDocuments)}}
	}
	wrong, read := 0, 0
	for read < len(pieces) && wrong <= maxWrong {
		for _, p := range pieces[read:min(read+decodeBatch, len(pieces))] {
			all.documents = append(all.documents, document{piece: p})
		}
		batch := all.documents[read:]
		decodeDocuments(name, batch, proxy, known)
		for i := range batch {
			if slices.ContainsFunc(batch[i].problems, func(p Problem) bool { return p.Refused }) {
				wrong++
			}
		}
		read += len(batch)
	}
	rest := len(pieces) - read
	for i := range all.documents {
		doc := &all.documents[i]
		all.objects = append(all.objects, doc.objects...)
		all.problems = append(all.problems, doc.problems...)
		all.skipped = append(all.skipped, doc.skipped...)
	}
	if rest > 0 {
		all.problems = append(all.problems, fileProblem(name, "correct the documents that are reported", "%d of its first %d documents are wrong, so the other %d are not read", wrong, read, rest))
	}
	return all
}

// What one file may cost. Others wait while it is decoded.
const (
	maxDocuments = 250_000
	maxWrong     = 1000 // documents that are refused, before the rest is not read
	decodeBatch  = 512  // documents that are decoded before their problems are counted
)

// decodeDocuments decodes some documents of a file.
func decodeDocuments(name string, documents []document, proxy source.Proxy, known map[sum]*document) {
	parallel(len(documents), func(i int) {
		doc := &documents[i]
		if doc.sum = sha256.Sum256(doc.text); known[doc.sum] != nil {
			doc.decoded = known[doc.sum].movedTo(doc)
		} else {
			d := decoder{file: name, doc: doc, proxy: proxy, lines: locator{doc: doc}}
			d.decode()
			doc.decoded = d.decoded
		}
		doc.text = nil
	})
}

// decoder decodes one document.
type decoder struct {
	decoded
	file     string
	doc      *document
	proxy    source.Proxy
	lines    locator
	repeated []string // fields that occur more than once, of which all but one got lost
}

// head is the part of an object that identifies it.
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

// identity returns the object's kind and name, with the default namespace.
func (i *item) identity() identity {
	name := model.Name{Namespace: i.Metadata.Namespace, Name: i.Metadata.Name}
	if i.Kind == "Node" || i.Kind == "ServiceCIDR" {
		name.Namespace = ""
	} else if name.Namespace == "" {
		name.Namespace = "default"
	}
	return identity{i.Kind, name}
}

func (d *decoder) decode() {
	raw, repeats, line, err := d.doc.toJSON()
	if err != nil {
		d.unreadable(line, err)
		return
	}
	if repeats {
		d.repeated = d.lines.parse().Repeated
	}
	d.item(raw, "", head{})
}

// unreadable reports a document that is not well-formed. The line is that in the
// document, or 0.
func (d *decoder) unreadable(line int, err error) {
	found := yamlsyntax.Explain(d.doc.text, line, err)
	if line = found.Line; line > 0 {
		line += d.doc.line - 1
	}
	d.problems = append(d.problems, Problem{d.file, d.doc.number, line, true, model.Problem{
		Object: model.Object{Kind: "document"},
		Reason: printable.CutAt(found.Reason, maxObject),
		Remedy: found.Remedy,
	}})
}

// item decodes an object or a list of objects. What the object does not say
// about itself is taken from defaults.
func (d *decoder) item(raw []byte, at string, defaults head) {
	it := item{raw: raw, at: at, head: defaults}
	// A field of the wrong type is left to the strict decoder, which knows the kind.
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(raw, &it.head); err != nil {
		if syntax, offset := sigsjson.SyntaxErrorOffset(err); syntax {
			d.unreadable(1+bytes.Count(raw[:min(int(offset), len(raw))], []byte("\n")), err)
			return
		}
	}
	element, isList := strings.CutSuffix(it.Kind, "List")
	kind, used := source.Kinds[element]
	switch text := bytes.TrimSpace(raw); {
	case bytes.Equal(text, []byte("null")):
	case len(text) == 0 || text[0] != '{':
		d.refuse(&it, "", "write an object with apiVersion, kind and metadata", "it is not an object")
	case it.APIVersion == "":
		d.refuse(&it, "apiVersion", "set apiVersion", "apiVersion is missing")
	case it.Kind == "":
		d.refuse(&it, "kind", "set kind", "kind is missing")
	case it.Kind == "List" && it.APIVersion == "v1":
		d.list(&it, head{})
	case !used && misspelt(&it) != "":
		d.refuse(&it, "kind", fmt.Sprintf("did you mean kind: %s?", misspelt(&it)), "there is no kind %s", it.Kind)
	case !used || foreign(it.APIVersion):
		d.skipped = append(d.skipped, it.Kind)
	case !slices.Contains(kind.Versions, it.APIVersion):
		d.refuse(&it, "apiVersion", "use apiVersion: "+strings.Join(kind.Versions, " or "), "%s is not served in version %q", it.Kind, it.APIVersion)
	case isList:
		d.list(&it, head{APIVersion: it.APIVersion, Kind: element})
	default:
		d.object(&it, kind)
	}
}

// misspelt returns the kind that an object of no known kind is probably meant to be,
// "" if it may be of another kind.
func misspelt(it *item) string {
	name := spelling.Nearest(strings.TrimSuffix(it.Kind, "List"), slices.Sorted(maps.Keys(source.Kinds)))
	if !slices.Contains(source.Kinds[name].Versions, it.APIVersion) {
		return ""
	}
	return name
}

// foreign reports whether a version is of an API group outside Kubernetes, where
// the name of a kind can mean something else.
func foreign(apiVersion string) bool {
	group, _, grouped := strings.Cut(apiVersion, "/")
	return grouped && strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
}

// list decodes the items of a list one by one, so that a bad one harms only itself.
func (d *decoder) list(it *item, defaults head) {
	if it.at != "" {
		d.refuse(it, "kind", "move its items to the outer list", "a list cannot be an item of a list")
		return
	}
	var list struct {
		metav1.TypeMeta `json:""`
		Metadata        metav1.ListMeta   `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if d.parse(it, &list) {
		for i, raw := range list.Items {
			d.item(raw, fmt.Sprintf("items[%d].", i), defaults)
		}
	}
}

// object decodes an object of a kind that is used.
func (d *decoder) object(it *item, kind source.Kind) {
	in, id := kind.New(), it.identity()
	if !d.parse(it, in) {
		return
	}
	in.SetNamespace(id.name.Namespace)
	events, problems := kind.Convert(in, d.proxy)
	refused := source.Refused(problems)
	d.report(it, problems, refused)
	if !refused {
		d.objects = append(d.objects, &object{identity: id, file: d.file, document: d.doc.number, number: len(d.objects), line: d.doc.line, events: events})
	}
}

// parse decodes an object strictly and reports what does not belong there.
func (d *decoder) parse(it *item, into any) bool {
	r := strictReport{source.NewReport(it.identity().object())}
	for _, path := range d.repeated {
		if field, ok := strings.CutPrefix(path, it.at); ok && (it.at != "" || !strings.HasPrefix(field, "items[")) {
			r.repeated(field)
		}
	}
	unknown, err := sigsjson.UnmarshalStrict(it.raw, into)
	for _, e := range unknown {
		r.unknown(it.Kind, into, e)
	}
	if err != nil {
		r.mistyped(it.raw, into, err)
	}
	problems := r.List()
	d.report(it, problems, true)
	return len(problems) == 0
}

// refuse refuses an object because of one field.
func (d *decoder) refuse(it *item, field, remedy, reason string, args ...any) {
	object := model.Object{Kind: "document"}
	if it.Kind != "" {
		object = it.identity().object()
	}
	d.report(it, []model.Problem{{Object: object, Field: field, Reason: fmt.Sprintf(reason, printable.CutAll(args)...), Remedy: remedy, Malformed: true}}, true)
}

// maxObject is more than a kind, a namespace and a name can have.
const maxObject = 400

// cutObject shortens what a text that was refused may say of any length.
func cutObject(o model.Object) model.Object {
	cut := func(s string) string { return printable.CutAt(s, maxObject) }
	return model.Object{Kind: cut(o.Kind), Namespace: cut(o.Namespace), Name: cut(o.Name)}
}

// report adds their place to the problems of an object.
func (d *decoder) report(it *item, problems []model.Problem, refused bool) {
	for _, p := range problems {
		if it.at != "" {
			p.Field = strings.TrimSuffix(it.at+p.Field, ".")
		}
		line := d.lines.line(p.Field)
		p.Object, p.Field = cutObject(p.Object), printable.Cut(p.Field)
		d.problems = append(d.problems, Problem{d.file, d.doc.number, line, refused, p})
	}
}
