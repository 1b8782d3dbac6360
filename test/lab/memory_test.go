//go:build linux

package lab_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sluice/internal/testkit"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// cgroup is one with a limit, of the version that this machine has.
type cgroup struct{ dir, peak string }

// newMemoryCgroup makes one with a limit of memory below that of the test.
func newMemoryCgroup(t *testing.T, limit int64) cgroup {
	t.Helper()
	above, file, peak := "/sys/fs/cgroup", "memory.max", "memory.peak"
	if first := firstVersion(t, "memory"); first != "" {
		above, file, peak = first, "memory.limit_in_bytes", "memory.max_usage_in_bytes"
	}
	dir := newCgroup(t, above, file, fmt.Sprint(limit))
	return cgroup{dir, filepath.Join(dir, peak)}
}

// newProcessorCgroup makes one with so many hundredths of a processor.
func newProcessorCgroup(t *testing.T, percent int) cgroup {
	t.Helper()
	const period = 100_000 // microseconds
	quota := fmt.Sprint(percent * period / 100)
	if first := firstVersion(t, "cpu"); first != "" {
		return cgroup{dir: newCgroup(t, first, "cpu.cfs_quota_us", quota)}
	}
	return cgroup{dir: newCgroup(t, "/sys/fs/cgroup", "cpu.max", fmt.Sprint(quota, " ", period))}
}

// firstVersion returns the directory of the test's cgroup of a controller if that is of version 1.
func firstVersion(t *testing.T, controller string) (dir string) {
	t.Helper()
	list, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && slices.Contains(strings.Split(parts[1], ","), controller) {
			dir = filepath.Join("/sys/fs/cgroup", controller, parts[2])
		}
	}
	return dir
}

// newCgroup makes one in a directory, and writes its limit.
func newCgroup(t *testing.T, above, file, limit string) string {
	t.Helper()
	dir, err := os.MkdirTemp(above, "sluice-lab-")
	if err != nil {
		t.Skipf("this machine has no cgroups that can be written: %v", err)
	}
	t.Cleanup(func() {
		testkit.Eventually(t, func() error { return os.Remove(dir) }) // its process is being released
	})
	if err := os.WriteFile(filepath.Join(dir, file), []byte(limit), 0); err != nil {
		t.Skipf("this machine has no limits by cgroups: %v", err)
	}
	return dir
}

// proxy returns a command that runs the proxy in the cgroup.
func (g cgroup) proxy(t *testing.T) string {
	t.Helper()
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	limited := filepath.Join(t.TempDir(), "kube-proxy")
	script := fmt.Sprintf("#!/bin/sh\necho $$ > %q && exec %q \"$@\"\n", filepath.Join(g.dir, "cgroup.procs"), binary)
	if err := testkit.WriteExecutable(limited, []byte(script)); err != nil {
		t.Fatal(err)
	}
	return limited
}

// most returns the most memory that was in use, in MiB: that of the process and of the commands it
// runs, of files that they read, and of the kernel for the rules that they wrote.
func (g cgroup) most(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(g.peak)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n >> 20
}

// The proxy collects garbage in time for the memory limit of its container, unless the
// environment says otherwise.
func TestMemoryLimitOfTheContainerIsRespected(t *testing.T) {
	t.Parallel()
	const limit = 128 << 20
	limited := newMemoryCgroup(t, limit).proxy(t)
	l := lab.Start(t)
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	for env, want := range map[string]bool{"GOMEMLIMIT=": true, "GOMEMLIMIT=1GiB": false} {
		p := launch(t, l, lab.ProxyOptions{Binary: limited, Manifests: dir, Env: []string{env}})
		settle(t, p, dir, 0)
		said := strings.Contains(p.Log().String(), fmt.Sprintf(`"Respecting the memory limit of the container" limit=%d heap=%d`, limit, limit/100*80))
		if said != want {
			t.Errorf("%s: it respects the limit: %t", env, said)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

// After its start the proxy lets less garbage gather, unless the environment says how much may.
func TestLittleGarbageAfterTheStart(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]string{"GOGC=": "40", "GOGC=77": "77"} {
		l, dir := lab.Start(t), t.TempDir()
		write(t, dir, "good.yaml", goodManifests, 0)
		p := launch(t, l, lab.ProxyOptions{Manifests: dir, Env: []string{env}})
		settle(t, p, dir, 0)
		testkit.Eventually(t, func() error {
			if want := "\ngo_gc_gogc_percent " + want + "\n"; !strings.Contains(metricsPage(l, "/metrics"), want) {
				return fmt.Errorf("%s: the metrics are without %q", env, want)
			}
			return nil
		})
	}
}

// As many Services as large clusters have, with two endpoints each, fit a container of 128 MiB. With
// iptables they do not: besides the proxy, which needs about as much as in other modes, the container
// has the command that lists all rules, or with legacy replaces them for each change, which takes 35 MiB,
// and the kernel charges it for a copy of the table before and after, which with legacy is twice all of it.
func TestManyServicesFitTheContainer(t *testing.T) {
	testkit.NotShort(t, "10,000 Services take some seconds")
	const services = 10_000
	modes := testkit.Extent(nil, []string{"nftables"}, scenario.ModesFor(t.Name()))
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			requireSupport(t, mode)
			limit := int64(128 << 20)
			switch m := scenario.Modes[mode]; {
			case m.Name == "iptables" && m.Variant == "legacy":
				limit = 256 << 20
			case m.Name == "iptables":
				limit = 192 << 20
			}
			group := newMemoryCgroup(t, limit)
			l := lab.Start(t)
			dir := t.TempDir()
			write(t, dir, "good.yaml", goodManifests, 0)
			for thousand := range services / 1000 {
				var b strings.Builder
				for i := range 1000 {
					name, ip := fmt.Sprintf("many%d-%d", thousand, i), fmt.Sprintf("10.%d.%d.%d", 100+thousand, i/250, 1+i%250)
					manifest := strings.NewReplacer("name: good", "name: "+name, "10.96.0.1", ip).Replace(goodManifests)
					service, _, _ := strings.Cut(manifest, "---")
					b.WriteString(service + lab.EndpointSlice("IPv4", name, "", "pod1", "pod2") + "---")
				}
				write(t, dir, fmt.Sprintf("many%d.yaml", thousand), b.String(), 0)
			}
			p := startProxy(t, l, mode, lab.ProxyOptions{Binary: group.proxy(t), Manifests: dir, Flags: []string{"--cluster-cidr=10.244.0.0/16"}})
			settle(t, p, dir, 0)
			last := netip.MustParseAddrPort("10.109.3.250:80")
			answered(t, l, last)
			mark := p.Log().Len()
			write(t, dir, "good.yaml", strings.ReplaceAll(goodManifests, "10.244.1.1", "10.244.1.2"), 0)
			settle(t, p, dir, mark)
			t.Logf("at most %d MiB in the container, %d MiB of the process", group.most(t), peak(t, p.PID())>>20)
			if err := p.Stop(); err != nil {
				t.Fatal(err)
			}
			p = startProxy(t, l, mode, lab.ProxyOptions{Binary: group.proxy(t), Manifests: dir, Flags: []string{"--cluster-cidr=10.244.0.0/16"}})
			settle(t, p, dir, 0) // it adopts what is there
			answered(t, l, last)
			t.Logf("after a restart at most %d MiB, %d MiB of the process", group.most(t), peak(t, p.PID())>>20)
		})
	}
}
