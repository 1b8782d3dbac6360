package config

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzLoad holds that any file is either refused or understood in full: what
// was understood reads the same after it was written.
func FuzzLoad(f *testing.F) {
	defaults, err := os.ReadFile("testdata/defaults.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(defaults),
		header,
		header + "clusterCIDR: 10.0.0.0/8\nclusterCIDR: fd00::/8\nunknown: [1, {a: b}]\n",
		header + "nftables: {masqueradeBit: 77, syncPeriod: -1s}\nipvs: {excludeCIDRs: [x, '']}\n",
		header + "logging: {format: xml, flushFrequency: 5, vmodule: [{filePattern: a, verbosity: 1}], options: {text: {infoBufferSize: 1Ki}}}\n",
		header + "featureGates: {AllAlpha: true, AllBeta: false, X: true}\nbindAddress: '::ffff:1.2.3.4'\n",
		header + "bindAddress: 010.1.1.1\nhealthzBindAddress: '[::1%lo]:0'\nnodePortAddresses: [primary, primary, '', 1.2.3.4/33]\n",
		header + "iptables: {masqueradeBit: 3, minSyncPeriod: 1s}\nconntrack: null\ndetectLocal: null\n",
		`{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration","mode":"ipvs"}`,
		header + "logging: {options: {json: {infoBufferSize: 1e9999999999}}}\n---\n" + header,
		header + "clusterCIDR: &a 10.0.0.0/8\nbindAddress: *a\n",
		"apiVersion: v1\nkind: Pod\n", "a: &a [*a]\n", "\x00", "---\n", "- - -", "{", "null",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := (&Flags{}).decode(data)
		if err != nil {
			return
		}
		first, err := Encode(c)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, problems, err := (&Flags{}).decode(first)
		if err != nil || len(problems) > 0 {
			t.Fatalf("what was written cannot be read: %v %v\n%s", err, problems, first)
		}
		second, err := Encode(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(first), string(second)); diff != "" {
			t.Fatalf("it changes when it is written and read (-before +after):\n%s", diff)
		}
		if s, err := Resolve(c, ""); err == nil && s.Configuration.Mode == "" {
			t.Fatal("resolved to no mode")
		}
	})
}
