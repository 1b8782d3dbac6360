package host

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrNoName says that the name of the node is empty.
var ErrNoName = errors.New("the name of this node is empty: set --hostname-override to the name of its Node object")

// NodeName returns the name of this node: the override, or else the machine's
// host name, in lower case as names of Node objects are.
func NodeName(override string) (string, error) {
	name := override
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("find the machine's host name: %w", err)
		}
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", ErrNoName
	}
	return name, nil
}
