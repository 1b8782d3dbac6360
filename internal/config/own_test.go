package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

const ownFile = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\nclusterCIDR: 10.244.0.0/16\n"

// fromFile resolves a command line with a file of that content.
func fromFile(t *testing.T, file string, args ...string) (f *Flags, eject *bool, s *Settings, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	f = AddFlags(set)
	f.AddOwn(set)
	eject = set.Bool("eject-failing-endpoints", false, "") // a flag of the command
	if err := set.Parse(append(args, "--config="+path)); err != nil {
		t.Fatal(err)
	}
	s, err = f.Settings()
	return f, eject, s, err
}

// A file can set what upstream's kube-proxy does not have; the command line counts more.
func TestOwnSettingsInAFile(t *testing.T) {
	section := ownFile + "sluice: {ejectFailingEndpoints: true, serviceProxyName: trial, externalIPRanges: [192.0.2.0/24, 2001:db8::/32]}\n"
	_, eject, s, err := fromFile(t, section)
	if err != nil || len(s.Warnings) > 0 {
		t.Fatal(err, s)
	}
	if !*eject || s.Instance != "trial" || s.Serving.Health.Port() != namedHealthPort || len(s.Plan.ExternalIPRanges) != 2 {
		t.Errorf("eject %t, instance %q, health %v, ranges %v", *eject, s.Instance, s.Serving.Health, s.Plan.ExternalIPRanges)
	}
	_, eject, s, err = fromFile(t, section, "--service-proxy-name=other", "--eject-failing-endpoints=false")
	if err != nil || *eject || s.Instance != "other" {
		t.Errorf("eject %t, instance %q, %v", *eject, s.Instance, err)
	}
}

// What is left empty is not set.
func TestEmptyOwnSettings(t *testing.T) {
	_, eject, s, err := fromFile(t, ownFile+"sluice: {serviceProxyName: , ejectFailingEndpoints: null, externalIPRanges: [], flowTable: null}\n")
	if err != nil || len(s.Warnings) > 0 || *eject || s.Instance != "" || len(s.Plan.ExternalIPRanges) > 0 {
		t.Error(err, s)
	}
}

func TestWrongOwnSettings(t *testing.T) {
	_, _, s, err := fromFile(t, ownFile+"sluice: {ejectFailingEndpoint: true}\n")
	if err != nil || len(s.Warnings) != 1 || s.Warnings[0].Field != "sluice.ejectFailingEndpoint" || !strings.Contains(s.Warnings[0].Remedy, "ejectFailingEndpoints") {
		t.Error(err, s)
	}
	for file, want := range map[string]string{
		"sluice: {ejectFailingEndpoints: maybe}\n": "sluice.ejectFailingEndpoints",
		"sluice: {serviceProxyName: 'a b'}\n":      "no Service can be labelled",
	} {
		if _, _, _, err := fromFile(t, ownFile+file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, _, s, err := fromFile(t, ownFile+"sluice: true\n"); err != nil || len(s.Warnings) != 1 {
		t.Error(err, s)
	}
}

// What the next process would do is known before it starts: what it would refuse, and what it would plan.
func TestLaterOwnSettings(t *testing.T) {
	f, _, s, err := fromFile(t, ownFile+"sluice: {externalIPRanges: [192.0.2.0/24]}\n", "--reject-localhost-nodeports")
	if err != nil {
		t.Fatal(err)
	}
	for section, want := range map[string]string{
		"{externalIPRanges: [everything]}":                   `"everything" is not a range in CIDR notation`,
		"{serviceProxyName: 'a b'}":                          "no Service can be labelled",
		"{allServices: true}":                                "--all-services says nothing without",
		"{ejectFailingEndpoints: maybe}":                     `sluice.ejectFailingEndpoints: "maybe" is not a value for it`,
		"{rejectLocalhostNodePorts: maybe, flowTable: some}": "flowTable",
	} {
		if _, err := f.Update([]byte(ownFile+"sluice: "+section+"\n"), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", section, err, want)
		}
	}
	for section, ranges := range map[string]int{"{externalIPRanges: '10.0.0.0/8,192.0.2.0/24'}": 2, "{externalIPRanges: []}": 0, "{serviceProxyName: trial}": 0} {
		u, err := f.Update([]byte(ownFile+"sluice: "+section+"\n"), s)
		if err != nil || len(u.Asked.Plan.ExternalIPRanges) != ranges || len(u.InForce.Plan.ExternalIPRanges) != 1 {
			t.Errorf("%s: %v, the next process has %v", section, err, u)
			continue
		}
		if named := strings.Contains(section, "trial"); (u.Asked.Instance == "trial") != named || u.InForce.Instance != "" ||
			u.Asked.Plan.UnservedLoopback != s.Plan.UnservedLoopback || len(u.Restart) == 0 {
			t.Errorf("%s: %+v", section, u.Asked)
		}
	}
}

// A change of them waits for a restart, unless the command line says the same whatever the file does.
func TestOwnSettingsNeedARestart(t *testing.T) {
	f, eject, s, err := fromFile(t, ownFile+"sluice: {ejectFailingEndpoints: true}\n", "--service-proxy-name=trial")
	if err != nil {
		t.Fatal(err)
	}
	update, err := f.Update([]byte(ownFile+"sluice: {serviceProxyName: other, resetRemovedEndpoints: true}\n"), s)
	if err != nil || len(update.Live) > 0 || !*eject || update.InForce.Instance != "trial" {
		t.Fatalf("%+v, %v", update, err)
	}
	var fields []string
	for _, c := range update.Restart {
		fields = append(fields, c.Field)
	}
	if want := []string{"sluice.ejectFailingEndpoints", "sluice.resetRemovedEndpoints"}; !slices.Equal(fields, want) {
		t.Errorf("waiting are %v, want %v", fields, want)
	}
}
