package configuration

import (
	"slices"
	"strings"

	"sluice/internal/config/configtest"
)

// header starts a configuration file.
const header = configtest.Header

// input is an input for both kube-proxies.
type input struct {
	// name identifies it in the list of differences.
	name string
	// file is the configuration file, nil for none.
	file *string
	args []string
	// starts is set for a command line that writes no configuration, for flags that do
	// not affect one that is written.
	starts bool
}

func file(name, text string, args ...string) input {
	return input{name: name, file: &text, args: args}
}

func flags(args ...string) input {
	words := []string{"kube-proxy"}
	for _, arg := range args {
		if arg == "" {
			arg = `""`
		}
		words = append(words, arg)
	}
	return input{name: strings.Join(words, " "), args: args}
}

// odd has every type of value, for fields of another type.
var odd = []string{"null", `""`, "5", "true", "word", "[a]", "{a: b}"}

// setting is a field or a flag and its value.
type setting = configtest.Setting

var (
	nftables = setting{Field: "mode", Flag: "proxy-mode", Value: "nftables"}
	iptables = nftables.To("iptables")
)

// inputs returns all inputs.
func inputs() []input {
	var all []input
	for _, r := range configtest.Rows {
		all = append(all, inFile(r, []setting{nftables}, odd...)...)
		for _, with := range contexts(r) {
			all = slices.Concat(all, inFile(r, with, inYAML(r)...), onCommandLine(r, with))
		}
	}
	clusterCIDR, nodeCIDR := configtest.Of("clusterCIDR"), configtest.Of("detectLocalMode").Setting // which does not use it
	all = append(all, inFile(clusterCIDR, []setting{nftables, nodeCIDR}, inYAML(clusterCIDR)...)...)
	return slices.Concat(all, wholeFiles(), commandLines(), besideAFile())
}

// contexts returns what is set beside a field or a flag: the modes in which it may matter,
// and what makes it matter.
func contexts(r configtest.Row) [][]setting {
	if r.Field == "mode" {
		return [][]setting{nil}
	}
	all := [][]setting{{nftables}}
	for _, prefix := range []string{"iptables", "nftables", "nodePort"} {
		if strings.HasPrefix(r.Field, prefix) {
			all = append(all, []setting{iptables})
		}
	}
	if strings.HasPrefix(r.Field, "iptables") {
		all = append(all, nil)
	}
	if r.With != nil {
		all = append(all, slices.Concat([]setting{nftables}, r.With))
	}
	return all
}

// inYAML returns the values of a field as a file has them.
func inYAML(r configtest.Row) (values []string) {
	for _, value := range r.All() {
		values = append(values, r.To(value).YAML())
	}
	return values
}

// inFile returns files with various values of a field.
func inFile(r configtest.Row, with []setting, values ...string) (all []input) {
	for _, value := range values {
		if text := configtest.File(append(with, setting{Field: r.Field, Value: value})...); r.Field != "" {
			all = append(all, file(strings.Join(strings.Fields(strings.TrimPrefix(text, header)), " "), text))
		}
	}
	return all
}

// onCommandLine returns command lines with various values of a flag.
func onCommandLine(r configtest.Row, with []setting) (all []input) {
	for _, value := range r.All() {
		var args []string
		for _, s := range append(with, r.To(value)) {
			args = append(args, s.Arg())
		}
		if r.Flag != "" {
			all = append(all, flags(args...))
		}
	}
	return all
}
