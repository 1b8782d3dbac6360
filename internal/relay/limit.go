package relay

import "fmt"

const (
	// reservedFiles are those for everything but connections.
	reservedFiles = 128
	// filesOfConnection are its two sockets, and a pipe while data is on its way.
	filesOfConnection = 4
	// mostConnections is how many there are at most: the kernel has no more than so
	// many ports for a few endpoints.
	mostConnections = 1 << 20
)

// ConnectionLimit returns how many TCP connections this process can relay at a time, with
// the files that it may open.
func ConnectionLimit() (int, error) {
	files, err := fileLimit()
	if err != nil {
		return 0, fmt.Errorf("find out how many files can be open: %w", err)
	}
	n := (min(files, mostConnections*filesOfConnection) - min(files, reservedFiles)) / filesOfConnection
	if n == 0 {
		return 0, fmt.Errorf("only %d files can be open, which leaves none for connections: raise the limit (ulimit -n, LimitNOFILE= of systemd)", files)
	}
	return int(n), nil
}
