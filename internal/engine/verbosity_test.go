package engine

import (
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"

	"sluice/internal/model"
	"sluice/internal/plan"
)

// Higher verbosities name the Services of a commit, and then their frontends.
func TestVerbosityNamesWhatChanged(t *testing.T) {
	for _, test := range []struct {
		verbosity int
		want      []string
		not       []string
	}{
		{2, []string{`"Programmed"`}, []string{"Services of the commit", "Set a frontend"}},
		{4, []string{`"Services of the commit"`, `"default/web"`, `"count"=1`}, []string{"Set a frontend"}},
		{6, []string{`"Set a frontend" "frontend"="10.0.0.1:80/TCP" "service"="default/web" "outside"=false "endpoints"="10.1.0.1:8080"`, `"Removed a frontend" "frontend"="10.0.0.2:80/TCP"`}, nil},
	} {
		var mu sync.Mutex
		var text strings.Builder
		e := &Engine{log: funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			text.WriteString(args + "\n")
		}, funcr.Options{Verbosity: test.verbosity})}
		f := &plan.Frontend{Key: plan.Key{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80, Protocol: model.TCP}, Service: model.Name{Namespace: "default", Name: "web"}}
		f.Route.Endpoints = []plan.Endpoint{{AddrPort: netip.MustParseAddrPort("10.1.0.1:8080")}}
		e.logCommit(&Commit{Kind: Apply, Planned: true, Change: &plan.Change{Set: []*plan.Frontend{f}, Removed: []plan.Key{plan.Key{Addr: netip.MustParseAddr("10.0.0.2"), Port: 80, Protocol: model.TCP}}}}, outcome{})
		for _, want := range test.want {
			if !strings.Contains(text.String(), want) {
				t.Errorf("at %d, %s is not in\n%s", test.verbosity, want, text.String())
			}
		}
		for _, not := range test.not {
			if strings.Contains(text.String(), not) {
				t.Errorf("at %d, %s is in\n%s", test.verbosity, not, text.String())
			}
		}
	}
}
