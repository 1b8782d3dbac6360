package config

import (
	"strings"
	"testing"
)

// TestDirectReturn is what the flag and the field mean, and where they are refused.
func TestDirectReturn(t *testing.T) {
	for _, tt := range []struct {
		name, field string
		args        []string
		on          bool
		device, err string
	}{
		{name: "off"},
		{name: "auto", args: []string{"--direct-return=auto"}, on: true},
		{name: "a device", args: []string{"--direct-return=eth0.100"}, on: true, device: "eth0.100"},
		{name: "in the file", field: "auto", on: true},
		{name: "off in the file", field: "false"},
		{name: "the command line counts more", field: "auto", args: []string{"--direct-return=bond0"}, on: true, device: "bond0"},
		{name: "the only proxy of the node", args: []string{"--direct-return=auto", "--service-proxy-name=trial", "--all-services"}, on: true},
		{name: "yes", field: "true", err: "use one such as eth0, or auto"},
		{name: "no device", args: []string{"--direct-return=eth0/1"}, err: `--direct-return: "eth0/1" is not the name of a device`},
		{name: "too long", args: []string{"--direct-return=abcdefghijklmnop"}, err: "is not the name of a device"},
		{name: "iptables", args: []string{"--direct-return=auto", "--proxy-mode=iptables"}, err: "not in iptables mode"},
		{name: "ipvs", args: []string{"--direct-return=auto", "--proxy-mode=ipvs"}, err: "not in ipvs mode"},
		{name: "userspace", args: []string{"--direct-return=auto", "--proxy-mode=userspace"}, err: "not in userspace mode"},
		{name: "beside another one", args: []string{"--direct-return=auto", "--service-proxy-name=trial"}, err: "beside another one"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s *Settings
			var err error
			if tt.field != "" {
				_, _, s, err = fromFile(t, ownFile+"sluice: {directReturn: "+tt.field+"}\n", tt.args...)
			} else {
				s, err = named(t, "", append([]string{"--proxy-mode=nftables"}, tt.args...)...)
			}
			switch {
			case tt.err != "":
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("the error is %v, want %q", err, tt.err)
				}
			case err != nil:
				t.Error(err)
			case s.Plan.DirectReturn != tt.on || s.Plan.DirectDevice != tt.device:
				t.Errorf("direct return is %v, through %q", s.Plan.DirectReturn, s.Plan.DirectDevice)
			}
		})
	}
}
