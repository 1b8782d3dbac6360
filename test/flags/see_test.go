//go:build linux

package flags

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice/test/lab"
)

// Observations that a word can answer.
const (
	yes  = "yes"
	no   = "no"
	none = "none"
)

func yesIf(holds bool) string {
	if holds {
		return yes
	}
	return no
}

// output collects one output stream of a process.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// try makes a connection. Unanswered ones must not take long: if an answer is
// expected, it is tried again.
func (p *proxy) try(from, to string) lab.Outcome {
	return p.lab.Connect(p.Context(), lab.Flow{From: from, Protocol: lab.TCP, To: netip.MustParseAddrPort(to), Timeout: 2 * lab.ShortTimeout})
}

func answered(from, to string) func(*proxy) string {
	return func(p *proxy) string { return yesIf(p.try(from, to).Kind == lab.Answered) }
}

// by returns which host answers.
func by(from, to string) func(*proxy) string {
	return func(p *proxy) string { return p.try(from, to).By }
}

// source returns the host that an endpoint sees.
func (p *proxy) source(from, to string) string {
	o := p.try(from, to)
	if o.Kind != lab.Answered {
		return string(o.Kind)
	}
	if h := p.lab.Owner(o.Source.Addr()); h != nil {
		return h.Name
	}
	return o.Source.String()
}

// sources returns the hosts that an endpoint sees when these connect to a
// ClusterIP.
func sources(from ...string) func(*proxy) string {
	return func(p *proxy) string {
		var seen []string
		for _, host := range from {
			seen = append(seen, p.source(host, clusterIP))
		}
		return strings.Join(seen, " ")
	}
}

// markedSource returns the host that an endpoint sees if another program has marked
// the packets with bit 5.
func markedSource(from string) func(*proxy) string {
	return func(p *proxy) string {
		const rules = `table ip marker
delete table ip marker
table ip marker {
	chain prerouting {
		type filter hook prerouting priority mangle; policy accept;
		ip daddr 10.96.0.1 tcp dport 81 meta mark set meta mark or 0x20
	}
}`
		if _, err := p.host.Run(p.Context(), lab.Command{Args: []string{"nft", "-f", "-"}, Input: rules}); err != nil {
			return err.Error()
		}
		return p.source(from, "10.96.0.1:81")
	}
}

func kernelHas(text string) func(*proxy) string {
	return func(p *proxy) string {
		out, err := p.host.Run(p.Context(), lab.Command{Args: []string{"nft", "list", "ruleset"}})
		if err != nil {
			return err.Error()
		}
		return yesIf(strings.Contains(out, text))
	}
}

// hasMetric reports whether there is a value of a metric.
func hasMetric(series string) func(*proxy) string {
	return func(p *proxy) string { return yesIf(p.metric(series) >= 0) }
}

// verified reports whether the kernel was just compared with the desired state.
func verified(p *proxy) string {
	const series = `kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"}`
	before := p.metric(series)
	time.Sleep(300 * time.Millisecond)
	if p.metric(series) > before {
		return "again and again"
	}
	return "long ago"
}

// another reports whether one more Service is programmed soon after the others.
func another(p *proxy) string {
	const came, pending = "kubeproxy_sync_proxy_rules_service_changes_total", "kubeproxy_sync_proxy_rules_service_changes_pending"
	before := p.metric(came)
	p.added++
	name, ip := fmt.Sprintf("another-%d", p.added), fmt.Sprintf("10.96.1.%d", p.added)
	for _, dir := range []string{"manifests", "more-manifests"} {
		p.write(dir+"/"+name+".yaml", service(name, ip, "10.244.1.2"))
	}
	p.eventually(func() bool { return p.metric(came) > before })
	for range 3 { // longer than iptables mode waits by default
		if p.try("pod3", ip+":80").Kind == lab.Answered {
			return "programmed"
		}
	}
	if p.metric(pending) > 0 {
		return "waits"
	}
	return "neither programmed nor waiting"
}

// stale returns what happens to a connection whose endpoint is removed.
func stale(p *proxy) string {
	const to = "10.96.0.3:80"
	p.write("manifests/gone.yaml", goneService("10.244.1.2"))
	p.eventually(func() bool { return by("pod3", to)(p) == "pod2" })
	s, err := p.lab.Open(lab.Flow{From: "pod3", Protocol: lab.TCP, To: netip.MustParseAddrPort(to)})
	if err != nil {
		return err.Error()
	}
	defer s.Close()
	p.write("manifests/gone.yaml", goneService("10.244.2.1"))
	p.eventually(func() bool { return by("pod3", to)(p) == "remote1" })
	for range 25 {
		if _, err := s.Ask(); errors.Is(err, unix.ECONNRESET) {
			return "reset"
		} else if err != nil {
			return err.Error()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return "goes on"
}

// moved returns what happens to a process whose file changes in a way that needs a
// restart.
func moved(p *proxy) string {
	p.writeConfig(of("configSyncPeriod").To("7m"))
	p.eventually(func() bool { return logHas("needs a restart")(p) == yes })
	for range 25 {
		if p.ended() {
			return "ended"
		}
		time.Sleep(20 * time.Millisecond)
	}
	return "goes on"
}

// state reports whether the process runs.
func state(p *proxy) string {
	if p.ended() {
		return fmt.Sprintf("ended with %d", p.cmd.ProcessState.ExitCode())
	}
	return "runs"
}

// client makes connections in the network of the host.
func (p *proxy) client() *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (conn net.Conn, err error) {
			err = p.host.Do(func() error { conn, err = net.DialTimeout(network, address, time.Second); return err })
			return conn, err
		},
	}}
}

func (p *proxy) get(address, path string, headers ...string) (*http.Response, string) {
	request, err := http.NewRequestWithContext(p.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		p.Error(err)
		return nil, ""
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := p.client().Do(request)
	if err != nil {
		return nil, ""
	}
	defer response.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(response.Body); err != nil {
		return nil, ""
	}
	return response, body.String()
}

// status returns how an HTTP server answers.
func (p *proxy) status(address, path string) string {
	response, _ := p.get(address, path)
	if response == nil {
		return none
	}
	return strconv.Itoa(response.StatusCode)
}

// page returns how a page is answered; without an address, one of the metrics
// server.
func page(address, path string) func(*proxy) string {
	return func(p *proxy) string {
		if address == "" {
			return p.status(metricsAddress(p), path)
		}
		return p.status(address, path)
	}
}

func healthAddress(p *proxy) string  { return p.address("healthz", "127.0.0.1:10256") }
func metricsAddress(p *proxy) string { return p.address("metrics", "127.0.0.1:10249") }

// address returns where a server listens.
func (p *proxy) address(server, otherwise string) string {
	if p.run.name == beside { // it has ports of its own
		otherwise = map[string]string{"healthz": "127.0.0.1:10266", "metrics": "127.0.0.1:10269"}[server]
	}
	for _, s := range p.settings() {
		if s.Flag == server+"-bind-address" && strings.Contains(s.Value, ":") {
			otherwise = s.Value
		}
		if s.Flag == server+"-port" {
			otherwise = "127.0.0.1:" + s.Value
		}
	}
	return otherwise
}

func metricsHave(text string) func(*proxy) string {
	return func(p *proxy) string {
		_, body := p.get(metricsAddress(p), "/metrics")
		if !strings.Contains(body, "\nsluice_") {
			return "there are no metrics"
		}
		return yesIf(strings.Contains(body, text))
	}
}

// metric returns the value of a series, -1 if there is none.
func (p *proxy) metric(series string) float64 {
	_, body := p.get(metricsAddress(p), "/metrics")
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			if v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64); err == nil {
				return v
			}
		}
	}
	return -1
}

// statusCommand queries the proxy by its control socket.
func statusCommand(p *proxy) string {
	if p.bench.command(p.T, p.host, "status", "--control-socket="+filepath.Join(p.dir, "socket")).code == 2 {
		return "no answer"
	}
	return "answered"
}

func oomScoreAdj(p *proxy) string {
	return content(fmt.Sprintf("/proc/%d/oom_score_adj", p.cmd.Process.Pid))
}

// scratch returns what the process wrote into a file that stands in for one of the kernel's.
func scratch(name string) func(*proxy) string {
	return func(p *proxy) string { return content(filepath.Join(p.dir, name)) }
}

func sysctl(name string) func(*proxy) string {
	return func(p *proxy) string { return sysctlOf(p.host, name) }
}

// sysctlOf returns a sysctl of connection tracking in the network of a host.
func sysctlOf(h *lab.Host, name string) (text string) {
	err := h.Do(func() error { text = content("/proc/sys/net/netfilter/" + name); return nil })
	if err != nil {
		return err.Error()
	}
	return text
}

func content(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

func logHas(text string) func(*proxy) string {
	return func(p *proxy) string { return yesIf(strings.Contains(p.stderr.String(), text)) }
}

// onStdout returns what the log on standard output looks like.
func onStdout(p *proxy) string {
	switch text := p.stdout.String(); {
	case strings.HasPrefix(text, "{"):
		return "JSON"
	case text != "":
		return "text"
	}
	return none
}
