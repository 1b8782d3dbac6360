package command

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/kube-proxy/config/v1alpha1"

	"sluice/internal/config"
	"sluice/internal/dataplane"
	"sluice/internal/dataplane/iptables"
)

// idle is a dataplane that does nothing.
type idle struct{ dataplane.Dataplane }

func TestIPTablesThatCannotBeUsedIsReplacedWhereNobodyChoseIt(t *testing.T) {
	noTables, noNFT := errors.New("no tables"), errors.New("no nf_tables")
	tests := []struct {
		name   string
		chosen string
		fails  map[v1alpha1.ProxyMode]error
		want   v1alpha1.ProxyMode
		tried  []v1alpha1.ProxyMode
		errs   []error
		reason string
	}{
		{"it can be used", "", nil, "iptables", []v1alpha1.ProxyMode{"iptables"}, nil, "nftables is the faster one"},
		{"it cannot", "", map[v1alpha1.ProxyMode]error{"iptables": noTables}, "nftables", []v1alpha1.ProxyMode{"iptables", "nftables"}, nil, "no tables"},
		{"neither can", "", map[v1alpha1.ProxyMode]error{"iptables": noTables, "nftables": noNFT}, "nftables",
			[]v1alpha1.ProxyMode{"iptables", "nftables"}, []error{errNoModeWorks, noTables, noNFT}, ""},
		{"it is busy", "", map[v1alpha1.ProxyMode]error{"iptables": iptables.ErrLocked}, "iptables",
			[]v1alpha1.ProxyMode{"iptables"}, []error{iptables.ErrLocked}, ""},
		{"iptables was chosen", "iptables", map[v1alpha1.ProxyMode]error{"iptables": noTables}, "iptables",
			[]v1alpha1.ProxyMode{"iptables"}, []error{noTables}, ""},
		{"nftables was chosen", "nftables", nil, "nftables", []v1alpha1.ProxyMode{"nftables"}, nil, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			o := &options{flags: config.AddFlags(set)}
			if err := set.Parse([]string{"--hostname-override=here", "--proxy-mode=" + test.chosen}); err != nil {
				t.Fatal(err)
			}
			o.flags.EmptyMode = config.ModeIPTables
			settings, err := o.settings()
			if err != nil {
				t.Fatal(err)
			}
			p := &proxy{options: o, settings: settings, logger: logr.Discard()}
			var tried []v1alpha1.ProxyMode
			reason, err := p.chooseKernel(t.Context(), func(mode v1alpha1.ProxyMode) (dataplane.Dataplane, error) {
				tried = append(tried, mode)
				return idle{}, test.fails[mode]
			})
			if diff := cmp.Diff(test.tried, tried); diff != "" || p.settings.Mode != test.want || p.settings.Plan.NodeName != "here" {
				t.Errorf("mode %s on %q, want %s; tried (-want +got):\n%s", p.settings.Mode, p.settings.Plan.NodeName, test.want, diff)
			}
			if (err != nil) != (len(test.errs) > 0) {
				t.Fatal(err)
			}
			for _, want := range test.errs {
				if !errors.Is(err, want) {
					t.Errorf("%v, want %v in it", err, want)
				}
			}
			if test.reason == "" && reason != "" || !strings.Contains(reason, test.reason) {
				t.Errorf("reason %q, want %q in it", reason, test.reason)
			}
		})
	}
}
