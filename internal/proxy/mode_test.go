package proxy

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"sluice/internal/config"
	"sluice/internal/dataplane"
)

// idle is a dataplane that does nothing.
type idle struct{ dataplane.Dataplane }

func TestDefaultModeFallsBackIfUnusable(t *testing.T) {
	noTables, noNFT := errors.New("no tables"), errors.New("no nf_tables")
	locked := errors.New("locked")
	tests := []struct {
		name   string
		chosen string
		fails  map[string]error
		want   string
		tried  []string
		errs   []error
		reason string
	}{
		{"it can be used", "", nil, "iptables", []string{"iptables"}, nil, "nftables is the faster one"},
		{"it cannot", "", map[string]error{"iptables": noTables}, "nftables", []string{"iptables", "nftables"}, nil, "no tables"},
		{"neither can", "", map[string]error{"iptables": noTables, "nftables": noNFT}, "nftables",
			[]string{"iptables", "nftables"}, []error{errNoModeWorks, noTables, noNFT}, ""},
		{"it is busy", "", map[string]error{"iptables": &dataplane.BusyError{Err: locked}}, "iptables",
			[]string{"iptables"}, []error{locked}, ""},
		{"iptables was chosen", "iptables", map[string]error{"iptables": noTables}, "iptables",
			[]string{"iptables"}, []error{noTables}, ""},
		{"nftables was chosen", "nftables", nil, "nftables", []string{"nftables"}, nil, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			o := &Options{Flags: config.AddFlags(set)}
			if err := set.Parse([]string{"--hostname-override=here", "--proxy-mode=" + test.chosen}); err != nil {
				t.Fatal(err)
			}
			o.Flags.EmptyMode = "iptables"
			settings, err := o.Settings()
			if err != nil {
				t.Fatal(err)
			}
			p := &proxy{options: o, settings: settings, logger: logr.Discard()}
			var tried []string
			reason, err := p.chooseDataplane(t.Context(), func(m dataplane.Mode) (dataplane.Dataplane, error) {
				tried = append(tried, m.Name)
				return idle{}, test.fails[m.Name]
			})
			if diff := cmp.Diff(test.tried, tried); diff != "" || p.settings.Mode.Name != test.want || p.settings.Plan.NodeName != "here" {
				t.Errorf("mode %s on %q, want %s; tried (-want +got):\n%s", p.settings.Mode.Name, p.settings.Plan.NodeName, test.want, diff)
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
