package kubernetes

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"sluice/internal/testkit"
)

// Requests have the token that the file has, or the last one if the file cannot be read.
func TestTokenIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		os.Remove(path)
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pipe := func() {
		os.Remove(path)
		if err := testkit.MakeFIFO(path); err != nil {
			t.Fatal(err)
		}
	}
	var got, expired string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got = r.Header.Get("Authorization"); got == expired {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL, BearerToken: "one", BearerTokenFile: path}
	followToken(config)
	if config.BearerToken != "" || config.BearerTokenFile != "" {
		t.Error("client-go reads the file, too")
	}
	transport := config.WrapTransport(http.DefaultTransport).(*bearer)
	for _, step := range []struct {
		name string
		do   func()
		old  bool // the token was read long ago
		want string
	}{
		{"at first", func() { write("zero\n") }, false, "Bearer one"},
		{"another token", func() { write("two\n") }, true, "Bearer two"},
		{"a pipe", pipe, true, "Bearer two"},
		{"no file", func() { os.Remove(path) }, true, "Bearer two"},
		{"an empty file", func() { write("") }, true, "Bearer two"},
		{"a token again", func() { write("three") }, true, "Bearer three"},
		{"too early", func() { write("four") }, false, "Bearer three"},
		{"the last request with a token that has expired", func() { expired = "Bearer three" }, false, "Bearer three"},
		{"the next one", func() {}, false, "Bearer four"},
	} {
		step.do()
		if step.old {
			transport.source.at = time.Now().Add(-2 * tokenPeriod)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if got != step.want {
			t.Errorf("%s: the request has %q, want %q", step.name, got, step.want)
		}
	}
}

// A file that does not answer keeps no request.
func TestTokenIsNotWaitedFor(t *testing.T) {
	f := &tokenFile{token: "old", reading: make(chan struct{})} // for good
	if got := f.get(t.Context()); got != "old" {
		t.Errorf("the token is %q", got)
	}
}
