//go:build linux

package vm

// iptablesPrograms are the binaries of iptables by name, and the files that each
// is found in: one for each variant, which goes by the name that it is called.
var iptablesPrograms = func() map[string]string {
	files := map[string]string{
		"":        "xtables-nft-multi", // as Debian has it
		"-nft":    "xtables-nft-multi",
		"-legacy": "xtables-legacy-multi",
	}
	programs := map[string]string{}
	for variant, file := range files {
		for _, command := range []string{"iptables", "ip6tables"} {
			for _, task := range []string{"", "-save", "-restore"} {
				programs[command+variant+task] = file
			}
		}
	}
	return programs
}()

// extensionsDir is where iptables looks for its matches and targets.
const extensionsDir = "/usr/lib/x86_64-linux-gnu/xtables"
