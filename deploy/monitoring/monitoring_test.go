package monitoring

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"sluice/internal/observe/telemetry"
)

// exported are the labels of every metric that the proxy exports in any mode,
// read from the lists that the tests of its metrics pin.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{ // of every process
		"process_cpu_seconds_total":     nil,
		"process_resident_memory_bytes": nil,
		"process_start_time_seconds":    nil,
		// Prometheus itself, kube-state-metrics and the node exporter.
		"up":                              nil,
		"kube_node_info":                  {"node", "os_image"},
		"node_nf_conntrack_entries":       nil,
		"node_nf_conntrack_entries_limit": nil,
	}
	for _, file := range []string{
		"../../internal/observe/telemetry/testdata/metrics.txt",
		"../../internal/observe/telemetry/testdata/metrics-iptables.txt",
		"../../internal/observe/telemetry/perservice/testdata/metrics.txt",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if len(words) < 2 || words[0] == "#" {
				continue
			}
			before, _, histogram := strings.Cut(line, ":")
			words = strings.Fields(before)
			metric, labels := words[0], words[2:]
			if histogram {
				all[metric+"_bucket"] = append(slices.Clone(labels), "le")
				all[metric+"_sum"], all[metric+"_count"] = labels, labels
			} else {
				all[metric] = labels
			}
		}
	}
	return all
}

// values are those that labels can have, as far as they are few.
var values = map[string][]string{
	"reason": {"no-endpoints", "no-local-endpoints", "source-ranges", "no-such-port", "unused-address"},
	"state":  {"used", "ready", "left_out", "terminating"},
	"status": {"programmed", "pending", "failed"},
	"series": {"own", "shared"},
	"about":  topics(),
	"job":    {"sluice"},
}

// abouts are what advisories can be about.
func topics() (out []string) {
	for _, a := range telemetry.Topics {
		out = append(out, string(a))
	}
	return out
}

// scraped are the labels that Prometheus adds, node as the PodMonitor asks for it.
var scraped = []string{"instance", "job", "node"}

// check holds an expression, and the labels that a text about it names, against
// what is exported.
func check(t *testing.T, all map[string][]string, expr string, texts ...string) {
	t.Helper()
	u := namesIn(expr)
	if len(u.metrics) == 0 {
		t.Errorf("no metric in %q", expr)
	}
	labels := slices.Clone(scraped)
	for _, metric := range u.metrics {
		has, known := all[metric]
		if !known {
			t.Errorf("no metric %s, which %q names", metric, expr)
		}
		labels = append(labels, has...)
	}
	for _, text := range texts {
		for _, m := range inTexts.FindAllStringSubmatch(text, -1) {
			u.labels = append(u.labels, m[1])
		}
	}
	for _, label := range u.labels {
		if !slices.Contains(labels, label) {
			t.Errorf("none of the metrics in %q has a label %s", expr, label)
		}
	}
	for label, compared := range u.values {
		for _, value := range compared {
			if known := values[label]; known != nil && !slices.Contains(known, value) {
				t.Errorf("label %s is never %q, as in %q", label, value, expr)
			}
		}
	}
}

// inTexts finds {{ $labels.x }} of alerts and {{x}} of legends.
var inTexts = regexp.MustCompile(`\{\{ *(?:\$labels\.)?([a-z_]+) *\}\}`)

// rules is a file of alert rules, as Prometheus defines it.
type rules struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func TestAlertsUseExportedMetrics(t *testing.T) {
	text, err := os.ReadFile("../chart/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file rules
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		t.Fatal(err)
	}
	all, seen := exported(t), map[string]bool{}
	for _, group := range file.Groups {
		if group.Name == "" || len(group.Rules) == 0 {
			t.Errorf("group %q has %d rules", group.Name, len(group.Rules))
		}
		for _, rule := range group.Rules {
			t.Run(rule.Alert, func(t *testing.T) {
				if seen[rule.Alert] {
					t.Error("there are two of that name")
				}
				seen[rule.Alert] = true
				if _, err := time.ParseDuration(rule.For); err != nil {
					t.Errorf("for: %v", err)
				}
				if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
					t.Errorf("severity is %q", rule.Labels["severity"])
				}
				summary, description := rule.Annotations["summary"], rule.Annotations["description"]
				if summary == "" || description == "" {
					t.Error("it lacks a summary or a description")
				}
				check(t, all, rule.Expr, summary, description)
				if got, want := rule.Annotations["runbook_url"], "docs/metrics.md#"+strings.ToLower(rule.Alert); got != want {
					t.Errorf("its runbook is %q, want %q", got, want)
				}
			})
		}
	}
	if len(seen) == 0 {
		t.Error("there are no alerts")
	}
	runbooks, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, m := range regexp.MustCompile(`(?m)^### (Sluice\w+)$`).FindAllStringSubmatch(string(runbooks), -1) {
		described = append(described, m[1])
	}
	slices.Sort(described)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(seen)), described); diff != "" {
		t.Errorf("runbooks (-alerts +docs/metrics.md):\n%s", diff)
	}
}

// dashboard is what is looked at of a dashboard of Grafana.
type dashboard struct {
	Title      string `json:"title"`
	UID        string `json:"uid"`
	Templating struct {
		List []struct {
			Name  string          `json:"name"`
			Type  string          `json:"type"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID      int    `json:"id"`
		Type    string `json:"type"`
		Title   string `json:"title"`
		GridPos struct{ X, Y, W, H int }
		Targets []struct {
			Expr   string `json:"expr"`
			Legend string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("../chart/files/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDashboardUsesExportedMetrics(t *testing.T) {
	d, all := readDashboard(t), exported(t)
	variables := []string{"$__rate_interval"}
	for _, v := range d.Templating.List {
		variables = append(variables, "$"+v.Name)
		if v.Type != "query" {
			continue
		}
		var q struct {
			Query string `json:"query"`
		}
		if err := json.Unmarshal(v.Query, &q); err != nil {
			t.Fatalf("variable %s: %v", v.Name, err)
		}
		check(t, all, q.Query)
	}
	variable := regexp.MustCompile(`\$[a-z_]+`)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			t.Run(p.Title, func(t *testing.T) {
				check(t, all, target.Expr, target.Legend)
				for _, used := range variable.FindAllString(target.Expr, -1) {
					if !slices.Contains(variables, used) {
						t.Errorf("there is no variable %s", used)
					}
				}
			})
		}
	}
}

func TestDashboardPanelsDoNotOverlap(t *testing.T) {
	d := readDashboard(t)
	if d.Title == "" || d.UID == "" || len(d.Panels) == 0 {
		t.Fatalf("title %q, uid %q, %d panels", d.Title, d.UID, len(d.Panels))
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || (p.Type != "row") != (len(p.Targets) > 0) {
			t.Errorf("panel %d %q of type %s has %d queries, or its number twice", p.ID, p.Title, p.Type, len(p.Targets))
		}
		ids[p.ID] = true
		if p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q is at %+v", p.Title, p.GridPos)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, there := taken[at]; there {
					t.Fatalf("panels %q and %q overlap", other, p.Title)
				}
				taken[at] = p.Title
			}
		}
	}
}

// Metrics of Services have the labels namespace and service. Without honorLabels, Prometheus
// would put those of the pod into their place.
func TestLabelsOfServicesAreKept(t *testing.T) {
	text, err := os.ReadFile("../kustomize/monitoring/monitoring.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		var monitor struct {
			Kind string
			Spec struct {
				PodMetricsEndpoints []struct{ HonorLabels bool }
			}
		}
		if err := yaml.Unmarshal([]byte(document), &monitor); err != nil {
			t.Fatal(err)
		}
		if monitor.Kind != "PodMonitor" {
			continue
		}
		if endpoints := monitor.Spec.PodMetricsEndpoints; len(endpoints) != 1 || !endpoints[0].HonorLabels {
			t.Errorf("the endpoints are %+v", endpoints)
		}
		return
	}
	t.Error("there is no PodMonitor")
}
