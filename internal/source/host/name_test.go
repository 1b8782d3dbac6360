package host

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func TestNodeName(t *testing.T) {
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, in, want string
		err            error
	}{
		{"host name of the machine", "", strings.ToLower(strings.TrimSpace(hostname)), nil},
		{"override", "node-1", "node-1", nil},
		{"override is trimmed and in lower case", "  Node-1.Example\n", "node-1.example", nil},
		{"override of blanks is no name", "  ", "", ErrNoName},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := NodeName(test.in)
			if got != test.want || !errors.Is(err, test.err) {
				t.Errorf("NodeName(%q) = %q, %v; want %q, %v", test.in, got, err, test.want, test.err)
			}
		})
	}
}
