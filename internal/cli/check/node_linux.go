package check

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"sluice/internal/base/printable"
	"sluice/internal/config"
	"sluice/internal/dataplane"
	"sluice/internal/kernel/capability"
	"sluice/internal/kernel/neighbour"
	"sluice/internal/kernel/sysctl"
	"sluice/internal/mode/leftovers"
	"sluice/internal/model"
	"sluice/internal/observe/coexist"
	"sluice/internal/observe/direct"
	"sluice/internal/observe/nodeproblem"
	"sluice/internal/plan"
)

// lacksIPv6 reports whether IPv6 is switched off on this node.
func lacksIPv6() bool { return sysctl.NoIPv6(sysctl.Options{Logger: logr.Discard()}) != "" }

func (r *Report) checkNode(ctx context.Context, o *Options, desired *plan.Desired) {
	r.checkKernel(o.Settings.Mode)
	r.checkRights()
	found := look(ctx, hostFiles)
	if found.err != nil {
		r.add(Todo, "node", "run it as root on the node", "not everything can be seen: %v", found.err)
	}
	r.reportInPlace(found, o.Settings)
	r.reportOthers(ctx, found, o.Settings)
	r.reportProblems(ctx, found, o, desired)
	r.checkDirect(desired.Settings.DirectReturn)
	r.tryMode(ctx, o, desired)
}

// checkDirect says whether this node could have direct return, where it is switched on.
func (r *Report) checkDirect(d *plan.DirectReturn) {
	const subject, remedy = "direct return", "set --direct-return to the device with the other nodes (docs/direct-return.md)"
	if d == nil {
		return
	}
	self, link, err := direct.Link(d)
	if err != nil {
		r.add(Todo, subject, remedy, "%v", err)
		return
	}
	for _, f := range model.Families {
		if !slices.Contains(link.Addrs, self.Path(f).Addr) {
			continue
		}
		near, all := 0, 0
		for i := range d.Nodes {
			addr := d.Nodes[i].Path(f).Addr
			if d.Nodes[i].Self || !addr.IsValid() {
				continue
			}
			if all++; neighbour.OnLink(link.Index, addr) {
				near++
			}
		}
		if near == 0 {
			r.add(Todo, subject, remedy, "none of %s (%s) is on the link of %s", printable.Count(all, "other node"), f, link.Name)
			continue
		}
		r.add(Fine, subject, "", "%d of %s (%s) on the link of %s; probes decide whether they are used",
			near, printable.Count(all, "other node"), f, link.Name)
	}
}

func (r *Report) checkKernel(m dataplane.Mode) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		r.add(Note, "kernel", "", "its version is not known: %v", err)
		return
	}
	release := unix.ByteSliceToString(name.Release[:])
	if m.CheckRelease != nil {
		if err := m.CheckRelease(release); err != nil {
			r.add(Todo, "kernel", "use a newer kernel, or another mode", "%v", err)
			return
		}
	}
	r.add(Fine, "kernel", "", "Linux %s is new enough", release)
}

// checkRights checks the capabilities of this process, which should be those that the
// proxy will have.
func (r *Report) checkRights() {
	can, err := capability.NetAdmin()
	if err != nil {
		r.add(Note, "capabilities", "", "they are not known: %v", err)
		return
	}
	if !can {
		r.add(Todo, "capabilities", "give the proxy NET_ADMIN, and run this check as root", "this process lacks CAP_NET_ADMIN, which the proxy needs")
		return
	}
	r.add(Fine, "capabilities", "", "CAP_NET_ADMIN is there")
}

// reportInPlace adds what there is of other kube-proxies.
func (r *Report) reportInPlace(found *inventory, s *config.Settings) {
	m := s.Mode
	r.InPlace = slices.Sorted(maps.Keys(found.inPlace))
	if s.Instance != "" {
		r.reportBeside(found, s)
		return
	}
	for _, mode := range r.InPlace {
		r.add(Note, "kube-proxy in place", "", "rules of %s mode: %s; they are removed once this proxy has programmed its own", mode,
			strings.Join(found.inPlace[mode].Traces, ", "))
	}
	if found.runs != "" {
		r.add(Note, "kube-proxy in place", "", "one answers on 127.0.0.1:10249, and runs in %s mode: it must end before this one starts", found.runs)
	}
	if len(r.InPlace) == 0 {
		r.add(Fine, "kube-proxy in place", "", "there are no rules of one")
	}
	for _, mode := range r.InPlace {
		if mode == m.Name {
			continue
		}
		for _, p := range found.inPlace[mode].Differences {
			level := Note
			if p.Remedy != "" {
				level = Todo
			}
			r.addAll(level, []model.Problem{p})
		}
	}
	if len(found.localnet) > 0 && !m.Configuration.LocalhostNodePorts {
		r.add(Note, "route_localnet", "unless another program needs it, run sysctl -w net.ipv4.conf.all.route_localnet=0 after the switch",
			"it is set on %s, by upstream's iptables mode or another program: neighbours can reach what listens on 127.0.0.1", strings.Join(found.localnet, ", "))
	}
}

// reportBeside adds what there is of kube-proxies beside which this one is to serve.
func (r *Report) reportBeside(found *inventory, s *config.Settings) {
	for _, mode := range r.InPlace {
		r.add(Fine, "kube-proxy in place", "", "rules of %s mode: %s; they stay, for all Services that are not labelled %s", mode,
			strings.Join(found.inPlace[mode].Traces, ", "), s.ServiceProxyName)
	}
	if len(r.InPlace) == 0 {
		r.add(Todo, "kube-proxy in place", "run another kube-proxy beside this one, or leave out --service-proxy-name",
			"there are no rules of one: nobody serves the Services that are not labelled %s", s.ServiceProxyName)
	}
}

// reportOthers adds other programs that write rules.
func (r *Report) reportOthers(ctx context.Context, found *inventory, s *config.Settings) {
	for _, o := range others {
		if by := found.has(o); by != "" {
			r.add(o.level, o.name, o.remedy, "%s (%s)", o.text, by)
		}
	}
	if !s.Mode.BesideIPTables || s.Instance != "" || !found.nftables {
		return
	}
	w := coexist.New(coexist.Options{
		Logger: logr.Discard(), Clock: clock.RealClock{}, Mark: func() uint32 { return 0 }, Uses: leftovers.Uses,
		Period: func() time.Duration { return time.Hour },
	})
	w.Look(ctx)
	r.addAll(Todo, w.Advisories())
}

// reportProblems adds what is wrong with the node.
func (r *Report) reportProblems(ctx context.Context, found *inventory, o *Options, desired *plan.Desired) {
	w := nodeproblem.NewWatcher(nodeproblem.Options{
		Logger: logr.Discard(), Ours: leftovers.Has, InIPTables: !o.Settings.Mode.BesideIPTables, WithoutNFTables: !found.nftables,
		Plan: func(read func(*plan.Desired, uint64, func(netip.Addr) bool)) {
			read(desired, 0, nodeproblem.OwnAddresses(o.State))
		},
	})
	defer w.Close()
	w.Look(ctx)
	if err := w.Err(); err != nil {
		r.add(Todo, "node", "run it as root on the node", "not all rules can be seen: %v", err)
	}
	settings, rules := w.Advisories()
	before := r.count(Todo)
	r.addAll(Todo, settings)
	r.addAll(Todo, rules)
	if r.count(Todo) == before {
		r.add(Fine, "network", "", "the kernel forwards packets, and no other program's rules drop those to Services")
	}
	r.addAll(Note, nodeproblem.Notes(logr.Discard()))
}

// tryMode programs everything in a network namespace of its own.
func (r *Report) tryMode(ctx context.Context, o *Options, desired *plan.Desired) {
	m := o.Settings.Mode
	if m.Missing != nil {
		if err := m.Missing(); err != nil {
			r.add(Todo, m.Name+" mode", "install it, or use another mode", "%v", err)
			return
		}
	}
	if missing := hostFiles.missingModules(m.Modules); len(missing) > 0 && !o.Try {
		r.add(Note, "modules", "run the check with --try to load them and try the mode, in a network namespace of its own",
			"%s are not loaded: the kernel loads them when the proxy starts, if it has them", strings.Join(missing, ", "))
		return
	}
	ns, err := newNamespace()
	if err != nil {
		remedy := ""
		if errors.Is(err, unix.EPERM) {
			remedy = "run it as root"
		}
		r.add(Note, m.Name+" mode", remedy, "it cannot be tried without a network namespace of its own: %v", err)
		return
	}
	defer ns.Close()
	r.program(ctx, o, int(ns.Fd()), desired)
}

func (r *Report) program(ctx context.Context, o *Options, netns int, desired *plan.Desired) {
	m := o.Settings.Mode
	// The lock of iptables is a file, which all network namespaces share.
	dir, err := os.MkdirTemp("", "sluice-check-")
	if err == nil {
		defer os.RemoveAll(dir)
		os.Setenv("XTABLES_LOCKFILE", dir+"/lock")
		defer os.Unsetenv("XTABLES_LOCKFILE")
	}
	start := time.Now()
	d, err := m.Open(ctx, dataplane.Options{Logger: logr.Discard(), NetNS: netns, ModeSettings: o.Settings.ModeSettings,
		Forwarding: dataplane.Forwarding{UDPTimeout: time.Minute}})
	if err != nil {
		remedy := "make it work, or use another mode"
		if o.ModeReason != "" {
			remedy = "set the mode; the proxy looks for another one if none is set, and --mode checks it"
		}
		r.add(Todo, m.Name+" mode", remedy, "it does not work on this node: %v", err)
		return
	}
	defer d.Close()
	result := d.Reconcile(ctx, desired)
	switch {
	case result.Err != nil:
		r.add(Todo, m.Name+" mode", "make it work, or use another mode", "the kernel does not take the rules: %v", result.Err)
	case len(result.Failed) > 0:
		for key, err := range result.Failed {
			r.add(Todo, "frontend "+key.String(), "use another mode, or report it", "the kernel refuses it: %v", err)
		}
	default:
		r.add(Fine, m.Name+" mode", "", "it works: it programmed %s in a network namespace of its own, in %s",
			printable.Count(len(desired.Frontends), "frontend"), time.Since(start).Round(time.Millisecond))
	}
	r.tryFlowTables(ctx, o, d)
}

// flowTableModules are what flow tables need, beside what the mode does.
var flowTableModules = []string{"nf_flow_table", "nf_flow_table_inet", "nft_flow_offload"}

// tryFlowTables makes flow tables without devices, if the proxy is to have them, or if that loads no modules.
func (r *Report) tryFlowTables(ctx context.Context, o *Options, d dataplane.Dataplane) {
	const subject = "flow tables"
	offloader, ok := d.(dataplane.Offloader)
	asked := o.Settings.FlowTable.On()
	if !ok || !asked && !o.Try && len(hostFiles.missingModules(flowTableModules)) > 0 {
		return
	}
	_, err := offloader.Offload(ctx, &dataplane.Offload{Families: o.Settings.Plan.Families()})
	switch {
	case err == nil && asked:
		r.add(Fine, subject, "", "the kernel has them")
	case err == nil:
		r.add(Fine, subject, "", "the kernel has them; --flow-table says whether they are used")
	case asked:
		r.add(Todo, subject, "use a kernel with the modules "+strings.Join(flowTableModules, ", ")+", or leave --flow-table out", "%v", err)
	default:
		r.add(Note, subject, "", "--flow-table would have no effect: %v", err)
	}
}

func localnet() []string {
	interfaces, err := sysctl.RouteLocalnet(sysctl.Options{Logger: logr.Discard()})
	if err != nil {
		return nil
	}
	return interfaces
}
