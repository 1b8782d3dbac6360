package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sluice/internal/dataplane"
	"sluice/internal/kernel/iptables"
	"sluice/internal/kernel/nft"
	"sluice/internal/mode"
	"sluice/internal/model"
)

// inventory is what there is on the node.
type inventory struct {
	dataplane.Inventory
	err      error
	nftables bool                           // the kernel has nftables, and it is loaded
	inPlace  map[string]dataplane.Detection // kube-proxies, by their mode
	localnet []string                       // interfaces with route_localnet
	runs     string                         // the mode of a kube-proxy that answers
}

// look takes the inventory of the node, in the network namespace of the caller.
func look(ctx context.Context, f files) *inventory {
	v := &inventory{Inventory: dataplane.Inventory{Tables: map[string][]string{}}, localnet: localnet(), runs: runningMode(ctx)}
	// A question about nftables would load it.
	if v.nftables = len(f.missingModules([]string{"nf_tables"})) == 0; v.nftables {
		v.err = v.readNFT(ctx)
	}
	v.err = errors.Join(v.err, v.readLegacy())
	links, err := net.Interfaces()
	v.err = errors.Join(v.err, err)
	for _, l := range links {
		v.Links = append(v.Links, l.Name)
	}
	v.detect()
	return v
}

func (v *inventory) readNFT(ctx context.Context) error {
	conn, err := nft.Dial(0, nft.SendBuffer)
	if err != nil {
		return err
	}
	defer conn.Close()
	var errs []error
	for _, family := range []nft.Family{nft.IP, nft.IP6, nft.INet, nft.NetDev} {
		tables, err := conn.TableNames(ctx, family)
		errs = append(errs, err)
		for _, table := range tables {
			chains, err := conn.Chains(ctx, nft.Table{Family: family, Name: table})
			errs = append(errs, err)
			key := family.String() + " " + table
			for _, c := range chains {
				v.Tables[key] = append(v.Tables[key], c.Name)
			}
			if len(chains) == 0 {
				v.Tables[key] = []string{}
			}
		}
	}
	return errors.Join(errs...)
}

func (v *inventory) readLegacy() error {
	var errs []error
	for _, f := range model.Families {
		tables, err := iptables.LegacyFamily(f).ReadAll(iptables.TableNames...)
		errs = append(errs, err)
		for name, t := range tables {
			key := iptables.Command(f) + "-legacy " + name
			for _, r := range t.Rules {
				if !slices.Contains(v.Tables[key], r.Chain) {
					v.Tables[key] = append(v.Tables[key], r.Chain)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// detect finds the kube-proxies that are in place.
func (v *inventory) detect() {
	v.inPlace = map[string]dataplane.Detection{}
	for _, m := range mode.All {
		if m.Detect == nil {
			continue
		}
		if found := m.Detect(&v.Inventory); len(found.Traces) > 0 {
			v.inPlace[m.Name] = found
		}
	}
}

// other is a program that writes rules, or implements Services itself.
type other struct {
	name          string
	tables, links []string // parts of names by which it is recognised
	chains        []string // the beginnings of names
	level         Level
	text, remedy  string
}

var others = []other{
	{name: "Cilium", links: []string{"cilium_host"}, level: Todo,
		text:   "it may implement Services itself",
		remedy: "see that kubeProxyReplacement is false in its configuration; otherwise the node needs no kube-proxy"},
	{name: "Calico", chains: []string{"cali-"}, level: Note,
		text:   "it filters traffic by rules of its own",
		remedy: "see that its eBPF dataplane, which replaces kube-proxy, is off"},
	{name: "firewalld", tables: []string{"inet firewalld"}, level: Note,
		text:   "it filters what the node receives and forwards, as before",
		remedy: "see that the zones of the interfaces allow node ports and forwarding to pods"},
	{name: "ufw", chains: []string{"ufw-"}, level: Note,
		text:   "it filters what the node receives and forwards, as before",
		remedy: "see that it allows node ports, and DEFAULT_FORWARD_POLICY"},
	{name: "Docker", chains: []string{"DOCKER"}, level: Note,
		text: "it has rules of its own, and may set the policy of FORWARD to DROP, which is checked separately"},
	{name: "kube-router", chains: []string{"KUBE-ROUTER-"}, level: Note,
		text:   "it may implement Services itself",
		remedy: "see that it runs with --run-service-proxy=false"},
}

// has returns by what a program is recognised, "" if it is not there.
func (v *inventory) has(o other) string {
	for _, l := range o.links {
		if slices.Contains(v.Links, l) {
			return "link " + l
		}
	}
	for _, table := range v.TableNames() {
		if slices.Contains(o.tables, table) {
			return "table " + table
		}
		for _, chain := range v.Tables[table] {
			if slices.ContainsFunc(o.chains, func(prefix string) bool { return strings.HasPrefix(chain, prefix) }) {
				return fmt.Sprintf("chain %s in table %s", chain, table)
			}
		}
	}
	return ""
}

// runningMode asks a running kube-proxy for its mode, "" if none answers.
func runningMode(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10249/proxyMode", nil)
	if err != nil {
		return ""
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // without a proxy of the environment
	answer, err := client.Do(request)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 100))
	if err != nil || answer.StatusCode != http.StatusOK {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// files are those of the node, below a directory.
type files string

const hostFiles files = "/"

func (f files) read(path string) string {
	text, err := os.ReadFile(filepath.Join(string(f), path))
	if err != nil {
		return ""
	}
	return string(text)
}

// missingModules returns those of some kernel modules that are neither loaded nor built
// in. A kernel that cannot load modules has none that are missing.
func (f files) missingModules(modules []string) (missing []string) {
	if _, err := os.Stat(filepath.Join(string(f), "proc/modules")); err != nil {
		return nil
	}
	loaded := f.read("proc/modules")
	var name unix.Utsname
	_ = unix.Uname(&name) // which cannot fail
	builtin := f.read("lib/modules/" + unix.ByteSliceToString(name.Release[:]) + "/modules.builtin")
	for _, m := range modules {
		_, err := os.Stat(filepath.Join(string(f), "sys/module", m))
		if err != nil && !strings.Contains("\n"+loaded, "\n"+m+" ") && !strings.Contains(builtin, "/"+m+".ko") {
			missing = append(missing, m)
		}
	}
	return missing
}

// newNamespace returns a network namespace, which is gone when it is closed.
func newNamespace() (ns *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread stays locked, and ends with the goroutine: no other one gets into
		// its namespace.
		runtime.LockOSThread()
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			ns, err = os.Open("/proc/thread-self/ns/net")
		}
	}()
	<-done
	return ns, err
}
