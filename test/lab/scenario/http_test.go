//go:build linux

package scenario

import (
	"testing"

	"sluice/test/lab"
)

func TestPagesAreHeldAgainstStatusAndText(t *testing.T) {
	page := lab.Page{Status: 503, Text: "HTTP/1.1 503\r\nWeight: 0\r\n\r\n{\"local\": 0}"}
	tests := []struct {
		name string
		in   httpExpectation
		want bool
	}{
		{"status", httpExpectation{status: 503}, true},
		{"status and header", httpExpectation{status: 503, text: "Weight: 0"}, true},
		{"status and body", httpExpectation{status: 503, text: `"local": 0`}, true},
		{"other status", httpExpectation{status: 200, text: "Weight: 0"}, false},
		{"other text", httpExpectation{status: 503, text: "Weight: 1"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.in.holds(page); got != tt.want {
				t.Errorf("holds is %v", got)
			}
		})
	}
}
