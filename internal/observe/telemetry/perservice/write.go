package perservice

import (
	"bytes"
	"cmp"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"

	"sluice/internal/model"
	"sluice/internal/observe/evidence"
	"sluice/internal/observe/verdict"
	"sluice/internal/plan"
)

// other is the label value of the series that several Services share. It is not a
// valid name in Kubernetes.
const other = "_other_"

// Write writes all metrics in the text format of Prometheus.
func (c *Collector) Write(to io.Writer) error {
	w := &writer{to: to}
	c.write(w)
	return w.flush()
}

// Gather returns all metrics, for formats other than text.
func (c *Collector) Gather() ([]*dto.MetricFamily, error) {
	var text bytes.Buffer
	_ = c.Write(&text) // a Buffer takes everything
	parser := expfmt.NewTextParser(prometheus.LegacyValidation)
	byName, err := parser.TextToMetricFamilies(&text)
	all := slices.SortedFunc(maps.Values(byName), func(a, b *dto.MetricFamily) int { return strings.Compare(*a.Name, *b.Name) })
	for _, family := range all {
		for _, m := range family.Metric {
			slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(*a.Name, *b.Name) })
		}
	}
	return all, err
}

func (c *Collector) write(w *writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	c.readKernel(c.Clock.Now())
	if c.Traffic != nil {
		c.services.writeRefused(w)
	}
	if !c.Off {
		c.countEndpoints()
		c.writeServices(w)
	}
}

func (all *services) writeRefused(w *writer) {
	w.metric("sluice_refused_packets_total", "counter", "Packets that asked for a connection and were rejected or dropped, by reason.")
	for why, n := range all.refused {
		w.sample(float64(n), "reason", plan.Cause(why).String())
	}
}

func (c *Collector) writeServices(w *writer) {
	all := &c.services
	w.metric("sluice_services", "gauge", "Services with a frontend on this node, by whether they have series of their own.")
	w.sample(float64(len(all.own)), "series", "own")
	w.sample(float64(len(all.shared)), "series", "shared")
	if c.Traffic != nil {
		all.writeConnections(w)
		all.writeServiceRefusals(w)
	}
	c.writeVerdicts(w)
	c.writeAnswers(w)
	all.writeEndpoints(w)
	all.writeProgramming(w)
	all.writeFailures(w)
}

// writeVerdicts writes how many Services there are by verdict, and those that do not simply
// work by name.
func (c *Collector) writeVerdicts(w *writer) {
	if c.Verdicts == nil {
		return
	}
	all := c.Verdicts()
	counts := map[verdict.Word]int{}
	for _, v := range all {
		counts[v.Word]++
	}
	w.metric("sluice_services_by_verdict", "gauge", "Services by whether their clients on or through this node get an answer.")
	for _, word := range verdict.Words {
		w.sample(float64(counts[word]), "verdict", string(word))
	}
	w.metric("sluice_service_verdict", "gauge", "1 for each Service whose clients do not all get an answer, by verdict and cause.")
	written := 0
	for _, name := range slices.SortedFunc(maps.Keys(all), model.Name.Compare) {
		if v := all[name]; v.Word != verdict.Works && written < c.Limit {
			w.serviceSample(name, 1, "verdict", string(v.Word), "cause", string(v.Cause))
			written++
		}
	}
}

// maxFailing is how many endpoints have series of their own.
const maxFailing = 1000

// writeAnswers writes the endpoints that do not answer, those with most failures if there are
// too many.
func (c *Collector) writeAnswers(w *writer) {
	if c.Answers == nil {
		return
	}
	all := c.Answers()
	maps.DeleteFunc(all, func(_ evidence.To, r evidence.Report) bool { return r.State == evidence.Fine })
	failing := slices.Collect(maps.Keys(all))
	if len(failing) > maxFailing {
		slices.SortFunc(failing, func(a, b evidence.To) int { return cmp.Compare(all[b].Failed, all[a].Failed) })
		failing = failing[:maxFailing]
	}
	slices.SortFunc(failing, evidence.To.Compare)
	w.metric("sluice_endpoint_failed_attempts", "gauge", "Connections to an endpoint that got no answer, by the kind of client, since the first of them. Only endpoints that do not answer, refuse connections or answer only some have a series.")
	for _, to := range failing {
		w.sample(float64(all[to].Failed), "endpoint", to.AddrPort.String(), "protocol", to.Protocol.String(), "from", to.From.String(), "state", all[to].State.String())
	}
}

func (all *services) writeConnections(w *writer) {
	w.metric("sluice_service_connections_total", "counter", "New connections to a service port on this node, by all its addresses of both families.")
	for _, s := range all.own {
		for _, p := range s.ports {
			if p.counted {
				w.serviceSample(s.name, float64(p.connections), "port", p.name, "protocol", p.protocol.String())
			}
		}
	}
	if len(all.shared) > 0 || all.other.connections > 0 {
		w.serviceSample(others, float64(all.other.connections), "port", other, "protocol", other)
	}
}

func (all *services) writeServiceRefusals(w *writer) {
	w.metric("sluice_service_refused_packets_total", "counter", "Packets that asked a Service for a connection and were rejected or dropped, by reason. Appears with the first one.")
	each := func(name model.Name, c *counts) {
		for i, n := range c.refused {
			if n > 0 {
				w.serviceSample(name, float64(n), "reason", plan.Cause(i).String())
			}
		}
	}
	for _, s := range all.own {
		each(s.name, &s.counts)
	}
	each(others, &all.other)
}

func (all *services) writeEndpoints(w *writer) {
	w.metric("sluice_service_endpoints", "gauge", "Endpoints of a Service by state. Those left out and terminating appear only if there are any.")
	each := func(name model.Name, c plan.EndpointCounts) {
		w.serviceSample(name, float64(c.Used), "state", "used")
		w.serviceSample(name, float64(c.Ready), "state", "ready")
		if c.LeftOut > 0 {
			w.serviceSample(name, float64(c.LeftOut), "state", "left_out")
		}
		if c.Terminating > 0 {
			w.serviceSample(name, float64(c.Terminating), "state", "terminating")
		}
	}
	for _, s := range all.own {
		each(s.name, s.endpoints)
	}
	if len(all.shared) > 0 {
		var sum plan.EndpointCounts
		for _, s := range all.shared {
			sum = sum.Plus(s.endpoints)
		}
		each(others, sum)
	}
}

func (all *services) writeProgramming(w *writer) {
	w.metric("sluice_service_programming_seconds", "gauge", "Time from when the last change of a Service came in until it was programmed.")
	for _, s := range all.own {
		if s.changed {
			w.serviceSample(s.name, s.latency.Seconds())
		}
	}
}

func (all *services) writeFailures(w *writer) {
	w.metric("sluice_service_failed_frontends", "gauge", "Frontends of a Service that are refused. Appears only while there are any.")
	shared := 0
	for _, s := range all.own {
		if s.failing > 0 {
			w.serviceSample(s.name, float64(s.failing))
		}
	}
	for _, s := range all.shared {
		shared += s.failing
	}
	if shared > 0 {
		w.serviceSample(others, float64(shared))
	}
	w.metric("sluice_service_failures_total", "counter", "How often a frontend of a Service was refused. Appears with the first time.")
	for _, s := range all.own {
		if s.failures > 0 {
			w.serviceSample(s.name, float64(s.failures))
		}
	}
	if all.other.failures > 0 {
		w.serviceSample(others, float64(all.other.failures))
	}
}

// others is the name of the Services that share series.
var others = model.Name{Namespace: other, Name: other}

// writer writes the text format through a small buffer.
type writer struct {
	to   io.Writer
	buf  []byte
	name string
	err  error
}

// flushAt is the size at which the buffer is written.
const flushAt = 32 << 10

// helpPrefix is the stability level, which every help text begins with.
const helpPrefix = "[ALPHA] "

func (w *writer) metric(name, kind, help string) {
	w.name = name
	w.text("# HELP ", name, " ", helpPrefix, help, "\n# TYPE ", name, " ", kind, "\n")
}

// maxLabels is how many labels a sample can have.
const maxLabels = 4

// serviceSample writes a sample of a Service; labels are names and values.
func (w *writer) serviceSample(name model.Name, value float64, labels ...string) {
	var room [2 * maxLabels]string
	w.sample(value, append(append(room[:0], "namespace", name.Namespace, "service", name.Name), labels...)...)
}

// sample writes a sample; labels are names and values.
func (w *writer) sample(value float64, labels ...string) {
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
		value = escaper.Replace(strings.ToValidUTF8(value, "\uFFFD"))
	}
	w.text(value, `"`)
}

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
