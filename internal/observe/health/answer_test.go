package health

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnswerFormat(t *testing.T) {
	body := func(localEndpoints, healthy string) string {
		return "{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n" +
			"\t\"localEndpoints\": " + localEndpoints + ",\n\t\"serviceProxyHealthy\": " + healthy + "\n}"
	}
	tests := []struct {
		name   string
		in     answer
		status int
		weight string
		body   string
	}{
		{"endpoints", answer{serviceName(web), 2, true}, 200, "2", body("2", "true")},
		{"no endpoints", answer{serviceName(web), 0, true}, 503, "0", body("0", "true")},
		{"endpoints behind a sick proxy", answer{serviceName(web), 2, false}, 503, "2", body("2", "false")},
		{"nothing at all", answer{serviceName(web), 0, false}, 503, "0", body("0", "false")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := httptest.NewRecorder()
			tt.in.write(got)
			if got.Code != tt.status {
				t.Errorf("status %d, want %d", got.Code, tt.status)
			}
			if diff := cmp.Diff(tt.body, got.Body.String()); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			header := http.Header{
				"Content-Type":                     {"application/json"},
				"X-Content-Type-Options":           {"nosniff"},
				"X-Load-Balancing-Endpoint-Weight": {tt.weight},
			}
			if diff := cmp.Diff(header, got.Header()); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
		})
	}
}
