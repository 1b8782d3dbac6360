package lab_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/internal/experiment"
	"sluice/internal/explain"
	"sluice/internal/testkit"
	"sluice/test/lab"
)

// said waits until status, services, the page and a metric all say a word of the proxy. Status
// and services also give the reason, and end as the word does.
func said(t *testing.T, a *asker, l *lab.Lab, word, reason string, code int) {
	t.Helper()
	testkit.Eventually(t, func() error {
		metric := `sluice_proxy_verdict{verdict="` + strings.ReplaceAll(word, " ", "-") + `"} 1`
		status, _, ended := a.ask("status")
		services, _, listed := a.ask("services")
		page := strings.ToLower(metricsPage(l, "/"))
		switch {
		case !strings.Contains(strings.ToLower(status), ", "+word) || !strings.Contains(strings.ToLower(status), strings.ToLower(reason)) || ended != code:
			return fmt.Errorf("status ends with %d:\n%s", ended, status)
		case word != "serving" && !strings.Contains(services, strings.ToUpper(word)+": "+reason):
			return fmt.Errorf("services:\n%s", services)
		case listed != code && word != "serving the past": // what is listed is true still
			return fmt.Errorf("services ends with %d", listed)
		case !strings.Contains(page, ">"+word+"<"):
			return fmt.Errorf("the page does not say %s", word)
		case !strings.Contains(metricsPage(l, "/metrics"), metric):
			return fmt.Errorf("there is no metric %s", metric)
		}
		return nil
	})
}

// A directory of manifests that does not exist is no reason to call the proxy healthy, and one
// that vanishes leaves what was loaded in force.
func TestProxyWithoutItsManifestsDoesNotServe(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := filepath.Join(t.TempDir(), "late")
	launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag}})
	a.ready()
	said(t, a, l, "not serving", "the manifests cannot be read", 1)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "good.yaml", goodManifests, 0)
	said(t, a, l, "serving", "", 0)
	said(t, a, l, "serving", "answers    connections looked at ", 0)
	if err := os.Rename(dir, dir+"-moved"); err != nil {
		t.Fatal(err)
	}
	said(t, a, l, "serving the past", "the manifests cannot be read", 1)
	if err := os.Rename(dir+"-moved", dir); err != nil {
		t.Fatal(err)
	}
	said(t, a, l, "serving", "", 0)
}

// What a connection shows stands beside what was predicted, from the node and from a pod, and
// decides the exit code.
func TestConnectionsAreTried(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests+"---"+strings.NewReplacer("name: good", "name: wrong", "service-name: good", "service-name: wrong", "10.96.0.1", "10.96.0.2", "8080", "9999").Replace(goodManifests), 0)
	p := launch(t, l, lab.ProxyOptions{Manifests: dir, Flags: []string{flag}})
	settle(t, p, dir, 0)
	a.ready()
	pod, err := l.Host("pod2")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		args    []string
		code    int
		outcome experiment.Outcome
		client  string
		meaning string
	}{
		{"from the node", []string{"10.96.0.1:80"}, 0, experiment.Answered, "192.0.2.10", "as predicted"},
		{"from a pod", []string{"10.96.0.1:80", "--netns", pod.Namespace.Name}, 0, experiment.Answered, "10.244.1.2", "as predicted"},
		{"nothing listens", []string{"10.96.0.2:80", "--netns", pod.Namespace.Name}, 1, experiment.Refused, "10.244.1.2", "10.244.1.1:9999, which refused it"},
		{"no Service", []string{"10.96.0.9:80"}, 1, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, stderr, code := a.ask(append([]string{"explain", "--try", "-o", "json"}, tt.args...)...)
			var reply explain.Reply
			if err := json.Unmarshal([]byte(out), &reply); err != nil || code != tt.code {
				t.Fatalf("it ends with %d, want %d: %v: %s %s", code, tt.code, err, out, stderr)
			}
			if tt.outcome == "" {
				return
			}
			r := reply.Answers[0].Tried
			if r == nil || r.Outcome != tt.outcome || r.Client.Addr().String() != tt.client || !strings.Contains(r.Meaning, tt.meaning) || !r.Endpoint.IsValid() {
				t.Errorf("%+v\nwant %s from %s: %s", r, tt.outcome, tt.client, tt.meaning)
			}
		})
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--from", "outside", "10.96.0.1:80"}, "name a pod by its address"},
		{[]string{"--from", "198.51.100.200", "10.96.0.1:80"}, "has the address 198.51.100.200"},
		{[]string{"--netns", "no-such", "10.96.0.1:80"}, "ip netns list"},
	} {
		if _, stderr, code := a.ask(append([]string{"explain", "--try"}, tt.args...)...); code != 2 || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v ends with %d: %s", tt.args, code, stderr)
		}
	}
}
