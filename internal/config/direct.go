package config

import (
	"fmt"
	"strings"
)

// autoDevice is the device that has the node's address.
const autoDevice = "auto"

// maxDevice is how long the name of a device may be.
const maxDevice = 15

// directReturn applies the switch for direct return.
func (f *Flags) directReturn(s *Settings, n *notes) {
	device := f.DirectReturn
	switch {
	case device == "", device == "false":
		return
	case !s.Plan.CanDirectReturn:
		n.fail("", fmt.Sprintf("--%s: not in %s mode", flagDirectReturn, s.Mode.Name),
			"leave it out, or set --proxy-mode to nftables")
	case f.beside():
		n.fail("", "--"+flagDirectReturn+": not for a proxy that serves a node beside another one",
			"leave it out, or set --all-services")
	case !isDevice(device):
		n.fail("", fmt.Sprintf("--%s: %q is not the name of a device", flagDirectReturn, device),
			"use one such as eth0, or auto for the device that has the node's address")
	}
	s.Plan.DirectReturn = true
	if device != autoDevice {
		s.Plan.DirectDevice = device
	}
}

// isDevice reports whether a word may be the name of a device. One called true is a mistake more likely.
func isDevice(word string) bool {
	return word != "true" && word != "." && word != ".." && len(word) <= maxDevice && !strings.ContainsAny(word, "/: \t\n")
}
