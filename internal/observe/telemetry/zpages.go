package telemetry

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// zpagesGroup is the API group of the pages that all Kubernetes components
// have in common, and zpagesVersions its versions, the deprecated one first.
const zpagesGroup = "config.k8s.io"

var zpagesVersions = []string{"v1alpha1", "v1beta1"}

// zpage is such a page, as text and as an object.
type zpage struct {
	kind string
	text func() string
	// object returns the fields of the object beside kind, version and name.
	object func() map[string]any
}

// ServeHTTP serves text unless the client asks for the object by its name, as in
// "application/json;g=config.k8s.io;v=v1beta1;as=Flagz", so that the format of the text
// may change.
func (p zpage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	accept := strings.TrimSpace(strings.Join(r.Header.Values("Accept"), ","))
	if accept == "" {
		accept = "text/plain"
	}
	for clause := range strings.SplitSeq(accept, ",") {
		mediaType, params, err := mime.ParseMediaType(clause)
		if err != nil {
			continue
		}
		switch mediaType {
		case "text/plain", "text/*", "*/*":
			if params["as"] == "" {
				writeText(w, http.StatusOK, p.text())
				return
			}
		case "application/json", "application/yaml":
			if p.matches(params) {
				p.writeObject(w, mediaType, params["v"])
				return
			}
		}
	}
	writeText(w, http.StatusNotAcceptable, fmt.Sprintf(
		"only these are served: text/plain, and application/json or application/yaml with g=%s;v=%s;as=%s\n",
		zpagesGroup, zpagesVersions[len(zpagesVersions)-1], p.kind))
}

func (p zpage) matches(params map[string]string) bool {
	return params["g"] == zpagesGroup && params["as"] == p.kind && slices.Contains(zpagesVersions, params["v"])
}

func (p zpage) writeObject(w http.ResponseWriter, mediaType, version string) {
	object := p.object()
	object["kind"] = p.kind
	object["apiVersion"] = zpagesGroup + "/" + version
	object["metadata"] = map[string]string{"name": component}
	marshal := json.Marshal
	if mediaType == "application/yaml" {
		marshal = yaml.Marshal
	}
	body, err := marshal(object)
	if err != nil {
		writeText(w, http.StatusInternalServerError, err.Error())
		return
	}
	if version == zpagesVersions[0] {
		w.Header().Set("Warning", fmt.Sprintf("299 - %q", version+" is deprecated, ask for "+zpagesVersions[1]))
	}
	write(w, http.StatusOK, mediaType, body)
}

func zpageHeader(name string) string {
	return component + " " + name + "\nFor people to read: the format may change at any time.\n\n"
}

func (s *Server) flagsPage() http.Handler {
	return zpage{
		kind: "Flagz",
		text: func() string {
			var b strings.Builder
			b.WriteString(zpageHeader("flagz"))
			flags := flagValues(s.Flags)
			for _, name := range slices.Sorted(maps.Keys(flags)) {
				fmt.Fprintf(&b, "%s=%s\n", name, flags[name])
			}
			return b.String()
		},
		object: func() map[string]any { return map[string]any{"flags": flagValues(s.Flags)} },
	}
}

func flagValues(flags *pflag.FlagSet) map[string]string {
	out := map[string]string{}
	flags.VisitAll(func(f *pflag.Flag) {
		out[f.Name] = f.Value.String()
		if len(f.Annotations["classified"]) > 0 {
			out[f.Name] = "CLASSIFIED"
		}
	})
	return out
}

func (s *Server) statusPage() http.Handler {
	uptime := func() time.Duration { return max(0, s.Clock.Since(s.started)).Truncate(time.Second) }
	return zpage{
		kind: "Statusz",
		text: func() string {
			return zpageHeader("statusz") + fmt.Sprintf("Started: %s\nUp: %s\nGo version: %s\nBinary version: %s\nMode: %s\nPaths: %s\n",
				s.started.UTC().Format(time.UnixDate), uptime(), runtime.Version(), s.Version, s.modeText(), strings.Join(s.paths(), " "))
		},
		object: func() map[string]any {
			return map[string]any{
				"startTime":     s.started.UTC().Format(time.RFC3339),
				"uptimeSeconds": int64(uptime().Seconds()),
				"goVersion":     runtime.Version(),
				"binaryVersion": s.Version,
				"paths":         s.paths(),
			}
		},
	}
}

// modeText is the mode, and why it is that one if it was not configured.
func (s *Server) modeText() string {
	if s.ModeReason == "" {
		return s.Mode
	}
	return fmt.Sprintf("%s (%s)", s.Mode, s.ModeReason)
}
