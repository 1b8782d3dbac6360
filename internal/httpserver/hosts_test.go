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
