package health

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"sluice/internal/base/httpserver"
	"sluice/internal/base/socketerror"
)

func TestEndlessHeaderIsRefused(t *testing.T) {
	socket, err := listenOn(netip.AddrPortFrom(here, 0))
	if err != nil {
		t.Fatal(err)
	}
	l := newListener(socket, http.NotFoundHandler(), httpserver.NewConnections(1), logr.Discard(), func(err error) { t.Errorf("broke: %v", err) })
	defer l.drain(time.Second)
	request, err := http.NewRequest(http.MethodGet, "http://"+socket.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Long", strings.Repeat("x", 2*httpserver.MaxHeaderBytes))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %s", response.Status)
	}
}

func TestRemedies(t *testing.T) {
	tests := []struct {
		in   error
		want string
	}{
		{socketerror.AddressInUse, "another healthCheckNodePort"},
		{socketerror.AddressNotAvailable, "--nodeport-addresses"},
		{syscall.EMFILE, "tried again"},
	}
	for _, tt := range tests {
		err := fmt.Errorf("listen: %w", os.NewSyscallError("bind", tt.in))
		if got := remedy(err); !strings.Contains(got, tt.want) {
			t.Errorf("remedy of %v is %q, want one with %q", err, got, tt.want)
		}
	}
}
