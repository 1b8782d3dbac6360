package perservice

import (
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// families gathers metrics as values of the Prometheus client.
type families struct {
	all []*dto.MetricFamily
	// room is for the next samples, which are allocated in chunks.
	room []sample
}

// sample is a metric with what it points to.
type sample struct {
	metric  dto.Metric
	counter dto.Counter
	gauge   dto.Gauge
	labels  [maxLabels]dto.LabelPair
	names   [maxLabels][2]string
	list    [maxLabels]*dto.LabelPair
	value   float64
}

// maxLabels is how many labels a sample can have.
const maxLabels = 4

// sampleChunk is how many samples are allocated at a time.
const sampleChunk = 256

func (f *families) begin(name, kind, help string) {
	family := &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum()}
	if kind == "counter" {
		family.Type = dto.MetricType_COUNTER.Enum()
	}
	f.all = append(f.all, family)
}

// add adds a sample to the metric that was begun last. Labels are names and values.
func (f *families) add(value float64, labels []string) {
	if len(f.room) == 0 {
		f.room = make([]sample, sampleChunk)
	}
	s := &f.room[0]
	f.room = f.room[1:]
	s.value = value
	for i := range len(labels) / 2 {
		s.names[i] = [2]string{labels[2*i], valid(labels[2*i+1])}
		s.labels[i].Name, s.labels[i].Value = &s.names[i][0], &s.names[i][1]
		s.list[i] = &s.labels[i]
	}
	s.metric.Label = s.list[:len(labels)/2]
	slices.SortFunc(s.metric.Label, func(a, b *dto.LabelPair) int { return strings.Compare(*a.Name, *b.Name) })
	family := f.all[len(f.all)-1]
	if *family.Type == dto.MetricType_COUNTER {
		s.counter.Value = &s.value
		s.metric.Counter = &s.counter
	} else {
		s.gauge.Value = &s.value
		s.metric.Gauge = &s.gauge
	}
	family.Metric = append(family.Metric, &s.metric)
}

// done returns the metrics that have a sample.
func (f *families) done() []*dto.MetricFamily {
	return slices.DeleteFunc(f.all, func(family *dto.MetricFamily) bool { return len(family.Metric) == 0 })
}
