package configuration

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The files of package config, and how to update them.
const (
	gatesFile   = "../../../internal/config/gates.txt"
	removedFile = "../../../internal/config/gates_removed.txt"
	regenerate  = "cd test/cluster && go run -tags upstream ./upstream write ../../internal/config"
)

func TestFeatureGatesMatchUpstream(t *testing.T) {
	want := listed(t, "list")
	if diff := cmp.Diff(want, read(t, gatesFile)); diff != "" {
		t.Errorf("gates.txt (-upstream +ours); to bring it up to date: %s\n%s", regenerate, diff)
	}
	registered := map[string]bool{}
	for _, name := range names(want) {
		registered[name] = true
	}
	for _, name := range names(read(t, removedFile)) {
		if registered[name] {
			t.Errorf("%s was not removed", name)
		}
	}
}

// gateInputs set each feature gate to both values, and removed ones to one.
func gateInputs(t *testing.T) []input {
	t.Helper()
	var inputs []input
	for _, name := range names(read(t, removedFile)) {
		inputs = append(inputs, flags("--proxy-mode=nftables", "--feature-gates="+name+"=true"))
	}
	for _, name := range append(names(read(t, gatesFile)), "AllAlpha", "AllBeta", "NoSuchGate", "nativehistograms") {
		for _, value := range []bool{true, false} {
			inputs = append(inputs, flags("--proxy-mode=nftables", fmt.Sprintf("--feature-gates=%s=%t", name, value)))
		}
	}
	for _, gates := range []string{"AllAlpha=true,AllBeta=true", "AllAlpha=true,NoSuchGate=true", "AllBeta=false,NativeHistograms=true",
		"GracefulNodeShutdown=false,WindowsGracefulNodeShutdown=true", "NoSuchGate=true,NativeHistograms=true"} {
		inputs = append(inputs, flags("--proxy-mode=nftables", "--feature-gates="+gates))
		inputs = append(inputs, file("feature gates in a file: "+gates,
			header+"mode: nftables\nfeatureGates: {"+strings.ReplaceAll(gates, "=", ": ")+"}\n"))
	}
	return inputs
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// names returns the first word of each line.
func names(list string) []string {
	var out []string
	for line := range strings.Lines(list) {
		if name, _, ok := strings.Cut(line, " "); ok && name != "#" {
			out = append(out, name)
		}
	}
	return out
}
