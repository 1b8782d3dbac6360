package perservice

import (
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"sluice/internal/model"
)

// writer writes the text format through a small buffer, or gathers metrics for other
// formats.
type writer struct {
	to   io.Writer
	buf  []byte
	name string
	err  error
	// families gathers the metrics; nil to write text.
	families *families
}

// flushAt is the size at which the buffer is written.
const flushAt = 32 << 10

// helpPrefix is the stability level, which every help text begins with.
const helpPrefix = "[ALPHA] "

// metric begins a metric.
func (w *writer) metric(name, kind, help string) {
	w.name = name
	if w.families != nil {
		w.families.begin(name, kind, helpPrefix+help)
		return
	}
	w.text("# HELP ", name, " ", helpPrefix, help, "\n# TYPE ", name, " ", kind, "\n")
}

// serviceSample writes a sample of a Service; labels are names and values.
func (w *writer) serviceSample(name model.Name, value float64, labels ...string) {
	var room [2 * maxLabels]string
	w.sample(value, append(append(room[:0], "namespace", name.Namespace, "service", name.Name), labels...)...)
}

// sample writes a sample; labels are names and values.
func (w *writer) sample(value float64, labels ...string) {
	if w.families != nil {
		w.families.add(value, labels)
		return
	}
	for i := 0; i < len(labels); i += 2 {
		if i == 0 {
			w.text(w.name, "{")
		} else {
			w.text(",")
		}
		w.label(labels[i], labels[i+1])
	}
	w.value(value)
}

func (w *writer) label(name, value string) {
	w.text(name, `="`)
	if strings.ContainsAny(value, "\\\"\n") || !utf8.ValidString(value) {
		value = escaper.Replace(valid(value))
	}
	w.text(value, `"`)
}

// valid replaces what is not UTF-8.
func valid(value string) string { return strings.ToValidUTF8(value, "\uFFFD") }

var escaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func (w *writer) value(v float64) {
	w.buf = append(w.buf, "} "...)
	w.buf = strconv.AppendFloat(w.buf, v, 'g', -1, 64)
	w.buf = append(w.buf, '\n')
	if len(w.buf) >= flushAt {
		w.send()
	}
}

func (w *writer) text(parts ...string) {
	for _, part := range parts {
		w.buf = append(w.buf, part...)
	}
}

func (w *writer) send() {
	if w.err == nil {
		_, w.err = w.to.Write(w.buf)
	}
	w.buf = w.buf[:0]
}

func (w *writer) flush() error {
	w.send()
	return w.err
}
