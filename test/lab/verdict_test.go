//go:build linux

package lab_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/internal/answer/explain"
	"sluice/internal/observe/experiment"
	"sluice/internal/observe/verdict"
	"sluice/internal/testkit"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
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

// judged waits until everything that people and programs ask says of Service default/good that it
// works, and connections to its addresses are answered.
func judged(t *testing.T, a *asker, l *lab.Lab, at ...netip.AddrPort) {
	t.Helper()
	testkit.Eventually(t, func() error {
		services, _, _ := a.ask("services", "-n", "default")
		explained, _, code := a.ask("explain", "default/good:80")
		status, _, _ := a.ask("status")
		switch {
		case !regexp.MustCompile(`(?m)^default +good +works `).MatchString(services):
			return fmt.Errorf("services:\n%s", services)
		case code != 0 || !strings.Contains(explained, "\nWORKS: "):
			return fmt.Errorf("explain ends with %d:\n%s", code, explained)
		case regexp.MustCompile(`(?m)^SERVICE +default/good `).MatchString(status):
			return fmt.Errorf("status:\n%s", status)
		case !strings.Contains(metricsPage(l, "/?q=default/good"), ">works<"):
			return errors.New("the page does not say that it works")
		case strings.Contains(metricsPage(l, "/metrics"), `sluice_service_verdict{namespace="default",service="good"`):
			return errors.New("a metric says that it does not work")
		}
		return nil
	})
	for _, to := range at {
		answered(t, l, to)
	}
}

// failing waits until everything that people and programs ask says of a Service that it fails, and
// why. Refused objects are no Services on the page, but problems.
func failing(t *testing.T, a *asker, l *lab.Lab, name string, word verdict.Word, cause verdict.Cause) {
	t.Helper()
	testkit.Eventually(t, func() error {
		services, _, _ := a.ask("services", "-n", "default")
		explained, _, code := a.ask("explain", "default/"+name)
		status, _, _ := a.ask("status")
		metric := fmt.Sprintf("sluice_service_verdict{namespace=\"default\",service=%q,verdict=%q,cause=%q} 1", name, word, cause)
		switch {
		case !regexp.MustCompile(`(?mi)^default +` + name + ` +` + word.Text() + ` `).MatchString(services):
			return fmt.Errorf("services:\n%s", services)
		case code != 1 || !strings.Contains(strings.ToLower(explained), "\n"+word.Text()):
			return fmt.Errorf("explain ends with %d:\n%s", code, explained)
		case !strings.Contains(status, "default/"+name+" "+word.Text()):
			return fmt.Errorf("status:\n%s", status)
		case cause != verdict.InvalidObject && !strings.Contains(metricsPage(l, "/?q=default/"+name), ">"+word.Text()+"<"):
			return fmt.Errorf("the page does not say %s", word.Text())
		case !strings.Contains(metricsPage(l, "/metrics"), metric):
			return fmt.Errorf("there is no metric %s", metric)
		}
		return nil
	})
}

// unanswered checks that nobody is told that Service default/good works while connections to it
// are not answered.
func unanswered(t *testing.T, a *asker, l *lab.Lab) {
	t.Helper()
	for _, to := range dualAddresses {
		if o := l.Connect(t.Context(), lab.Flow{From: "pod3", Protocol: lab.TCP, To: to, Timeout: lab.ShortTimeout}); o.Kind == lab.Answered {
			t.Errorf("%v: %v", to, o)
		}
	}
	for _, question := range []string{"default/good", "10.96.0.1:80"} {
		if out, errs, code := a.ask("explain", question); code != 1 || strings.Contains(out, "WORKS") {
			t.Errorf("explain of %s ends with %d: %s%s", question, code, out, errs)
		}
	}
}

// A directory of manifests that does not exist is no reason to call the proxy healthy, and one
// that vanishes leaves what was loaded in force.
func TestProxyWithoutItsManifestsDoesNotServe(t *testing.T) {
	t.Parallel()
	inEachMode(t, testWithoutManifests)
}

func testWithoutManifests(t *testing.T, mode string) {
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := filepath.Join(t.TempDir(), "late")
	startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: []string{flag}})
	a.ready()
	said(t, a, l, "not serving", "the manifests cannot be read", 1)
	unanswered(t, a, l)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "good.yaml", dualGood, 0)
	said(t, a, l, "serving", "", 0)
	judged(t, a, l, dualAddresses...)
	said(t, a, l, "serving", "answers    connections looked at ", 0)
	if err := os.Rename(dir, dir+"-moved"); err != nil {
		t.Fatal(err)
	}
	said(t, a, l, "serving the past", "the manifests cannot be read", 1)
	judged(t, a, l, dualAddresses...)
	if err := os.Rename(dir+"-moved", dir); err != nil {
		t.Fatal(err)
	}
	said(t, a, l, "serving", "", 0)
}

// What a connection shows stands beside what was predicted, from the node and from a pod, and
// decides the exit code. Where the proxy accepts connections itself, nothing is shown before an
// endpoint has taken them.
func TestConnectionsAreTried(t *testing.T) {
	t.Parallel()
	inEachMode(t, triedInMode)
}

func triedInMode(t *testing.T, mode string) {
	l := lab.Start(t)
	a, flag := newAsker(t, l)
	dir := t.TempDir()
	another := func(name, ip, port string) string {
		return "---" + strings.NewReplacer("name: good", "name: "+name, "10.96.0.1", ip, "8080", port).Replace(goodManifests)
	}
	wrong := strings.Replace(another("wrong", "10.96.0.2", "9999"), "ports: [{port: 80}]", "type: NodePort\n  ports: [{port: 80, nodePort: 30082}]", 1)
	write(t, dir, "good.yaml", goodManifests+wrong+another("silent", "10.96.0.3", "8081"), 0)
	p := startProxy(t, l, mode, lab.ProxyOptions{Manifests: dir, Flags: []string{flag, "--nodeport-addresses=primary,localhost"}})
	settle(t, p, dir, 0)
	a.ready()
	pod, err := l.Host("pod2")
	if err != nil {
		t.Fatal(err)
	}
	// By this address of its own the pod is told from those of other labs, which have the same ones.
	own := fmt.Sprintf("10.244.1.%d", 77+slices.Index(scenario.ModeNames(), mode))
	if _, err := pod.Run(t.Context(), lab.Command{Args: []string{"ip", "addr", "add", own + "/32", "dev", "lo"}}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		args    []string
		code    int
		outcome experiment.Outcome
		client  string
		at      string // the endpoint
		meaning string
	}{
		{"from the node", []string{"10.96.0.1:80"}, 0, experiment.Answered, "192.0.2.10", "10.244.1.1:8080", "as predicted"},
		{"from a pod", []string{"10.96.0.1:80", "--netns", pod.Namespace.Name}, 0, experiment.Answered, "10.244.1.2", "10.244.1.1:8080", "as predicted"},
		{"from a pod's address", []string{"10.96.0.1:80", "--from", own}, 0, experiment.Answered, "10.244.1.2", "10.244.1.1:8080", "as predicted"},
		{"nothing listens", []string{"10.96.0.2:80", "--netns", pod.Namespace.Name}, 1, experiment.ConnectionRefused, "10.244.1.2", "10.244.1.1:9999", "10.244.1.1:9999, which refused it"},
		{"nothing listens, on loopback", []string{"127.0.0.1:30082"}, 1, experiment.ConnectionRefused, "127.0.0.1", "10.244.1.1:9999", ""}, // which may be known by now
		{"no Service", []string{"10.96.0.9:80"}, 1, "", "", "", ""},
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
			if r == nil || r.Outcome != tt.outcome || r.Client.Addr().String() != tt.client || !strings.Contains(r.Meaning, tt.meaning) || r.Endpoint.String() != tt.at {
				t.Errorf("%+v\nwant %s from %s by %s: %s", r, tt.outcome, tt.client, tt.at, tt.meaning)
			}
		})
	}
	t.Run("on the page", func(t *testing.T) { triedOnPage(t, l, a.node, own, !scenario.Modes[mode].InProcess) })
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

// triedOnPage has connections sent by the page, as a browser does when its button is pressed. One
// comes from a pod, by its address. The page shows whom the endpoint sees if the kernel knows that.
func triedOnPage(t *testing.T, l *lab.Lab, node *lab.Host, own string, seen bool) {
	pod, err := l.Host("pod1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pod.Run(t.Context(), lab.Command{Args: []string{"nft", "add table inet fw; add chain inet fw in { type filter hook input priority 0; }; add rule inet fw in tcp dport 8081 drop"}}); err != nil {
		t.Fatal(err)
	}
	const page = "http://127.0.0.1:10249"
	client := &http.Client{Transport: &http.Transport{DialContext: func(_ context.Context, network, at string) (c net.Conn, err error) {
		err = node.Do(func() error { c, err = net.Dial(network, at); return err })
		return c, err
	}}}
	defer client.CloseIdleConnections()
	send := func(service, from, to, origin, host string) (code int, text string) {
		t.Helper()
		form := url.Values{"namespace": {"default"}, "name": {service}, "from": {from}, "to": {to}}
		r, err := http.NewRequest(http.MethodPost, page+"/try", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", origin)
		r.Host = host
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, html.UnescapeString(string(body))
	}
	sees := ""
	if seen {
		sees = "which sees "
	}
	for _, tt := range []struct {
		service, from, to string
		want              []string
	}{
		{"good", "node", "10.96.0.1:80/TCP", []string{"Tried from this node", "answered by 10.244.1.1:8080", sees, "It means: as predicted"}},
		{"good", own, "10.96.0.1:80/TCP", []string{"Tried from ", own, "answered by 10.244.1.1:8080", "It means: as predicted"}},
		{"wrong", "node", "10.96.0.2:80/TCP", []string{"refused by 10.244.1.1:9999", sees, ">does not answer</span> the endpoint refuses connections", "It means: as predicted"}}, // it was tried before
		{"silent", "pod", "10.96.0.3:80/TCP", []string{"Tried from this node", "no answer from 10.244.1.1:8081 after 3", "nothing came back: the pod is gone"}},
	} {
		var code int
		var text string
		testkit.Eventually(t, func() error {
			if code, text = send(tt.service, tt.from, tt.to, page, "127.0.0.1:10249"); code == http.StatusTooManyRequests {
				return errors.New("one a second is sent")
			}
			return nil
		})
		for _, want := range tt.want {
			if code != http.StatusOK || !strings.Contains(text, want) {
				t.Errorf("default/%s is answered with %d, and lacks %q:\n%s", tt.service, code, want, text)
			}
		}
	}
	for _, origin := range []string{"http://evil.example", "null"} {
		if code, text := send("good", "node", "10.96.0.1:80/TCP", origin, "127.0.0.1:10249"); code != http.StatusForbidden || !strings.Contains(text, origin) {
			t.Errorf("a form of %s is answered with %d: %s", origin, code, text)
		}
	}
	if code, text := send("good", "node", "10.96.0.1:80/TCP", "http://evil.example", "evil.example"); code != http.StatusForbidden || !strings.Contains(text, "not a name of this proxy") {
		t.Errorf("a form to another host is answered with %d: %s", code, text)
	}
}
