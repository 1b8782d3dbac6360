package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"mime"
	"net/http"
	"path"
	"time"

	"sluice/internal/base/printable"
)

//go:embed assets
var assets embed.FS

var (
	overviewTemplate = parse("overview.html")
	serviceTemplate  = parse("service.html")
	mapTemplate      = parse("map.html")
	problemsTemplate = parse("problems.html")
	eventsTemplate   = parse("events.html")
	missingTemplate  = parse("missing.html")
)

// parse parses a page and the layout of all pages, which are embedded in the binary.
func parse(name string) *template.Template {
	funcs := template.FuncMap{"text": printable.Escape, "count": count[int], "link": serviceLink}
	return template.Must(template.New("layout.html").Funcs(funcs).ParseFS(assets, "assets/layout.html", "assets/parts.html", "assets/"+name))
}

// asset is a file of the page.
type asset struct {
	name, kind, tag string
	content         []byte
}

func newAsset(name string) http.Handler {
	content, err := assets.ReadFile("assets/" + name)
	if err != nil {
		return http.NotFoundHandler()
	}
	sum := sha256.Sum256(content)
	return &asset{
		name:    name,
		kind:    mime.TypeByExtension(path.Ext(name)),
		tag:     `"` + hex.EncodeToString(sum[:8]) + `"`,
		content: content,
	}
}

// ServeHTTP makes browsers revalidate their copy each time: the next version may have
// another file.
func (a *asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.tag)
	http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(a.content))
}
