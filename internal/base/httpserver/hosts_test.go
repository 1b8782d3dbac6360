package httpserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPagesAreShownByOwnNamesOnly(t *testing.T) {
	page := OwnHosts(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page") }), "Node1.example.com")
	tests := []struct {
		host string
		want int
	}{
		{"127.0.0.1:10249", 200},
		{"127.0.0.1", 200},
		{"[::1]:10249", 200},
		{"[::1]", 200},
		{"192.0.2.10:10249", 200},
		{"localhost:10249", 200},
		{"LOCALHOST.", 200},
		{"node1.example.com:10249", 200},
		{"node1.example.com.:80", 200},
		{"", 200}, // HTTP/1.0
		{"node1:10249", 403},
		{"evil.example:10249", 403},
		{"localhost.evil.example", 403},
		{"127.0.0.1.evil.example:10249", 403},
		{"node1.example.com.evil.example", 403},
		{"[::1].evil.example", 403},
		{"<script>", 403},
	}
	for _, tt := range tests {
		t.Run(tt.host, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Host = tt.host
			w := httptest.NewRecorder()
			page.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("it is answered %d, want %d", w.Code, tt.want)
			}
			if body := w.Body.String(); tt.want == 403 && !strings.Contains(body, "localhost or the name of the node") {
				t.Errorf("it does not say what to do: %s", body)
			}
		})
	}
}

func TestFormsAreTakenFromOwnPagesOnly(t *testing.T) {
	page := SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") }))
	for _, tt := range []struct {
		name, site, origin, host string
		want                     int
	}{
		{"a browser of today", "same-origin", "http://127.0.0.1:10249", "127.0.0.1:10249", 200},
		{"behind a server that sets the host", "same-origin", "https://ops.example", "127.0.0.1:10249", 200},
		{"without a secure context", "", "http://192.0.2.10:10249", "192.0.2.10:10249", 200},
		{"another site", "cross-site", "https://evil.example", "127.0.0.1:10249", 403},
		{"another port of the machine", "same-site", "http://127.0.0.1:8000", "127.0.0.1:10249", 403},
		{"typed by the user", "none", "", "127.0.0.1:10249", 403},
		{"another site, which has our origin", "cross-site", "http://127.0.0.1:10249", "127.0.0.1:10249", 403},
		{"another origin", "", "https://evil.example", "127.0.0.1:10249", 403},
		{"another port by its origin", "", "http://127.0.0.1:8000", "127.0.0.1:10249", 403},
		{"a hidden origin", "", "null", "127.0.0.1:10249", 403},
		{"a hidden origin, and no host", "", "null", "", 403},
		{"no origin, and no host", "", "", "", 403},
		{"no browser", "", "", "127.0.0.1:10249", 403},
		{"no URL", "", "http://%zz", "127.0.0.1:10249", 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Host = tt.host
			for name, value := range map[string]string{"Sec-Fetch-Site": tt.site, "Origin": tt.origin} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			w := httptest.NewRecorder()
			page.ServeHTTP(w, r)
			if body := w.Body.String(); w.Code != tt.want || tt.want == 403 && !strings.Contains(body, "Sec-Fetch-Site") && !strings.Contains(body, "Origin") {
				t.Errorf("it is answered %d, want %d: %s", w.Code, tt.want, body)
			}
		})
	}
}
