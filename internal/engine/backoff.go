package engine

import "time"

const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 30 * time.Second
)

// backoff is how long to wait after so many failures in a row.
func backoff(failures int) time.Duration {
	delay := backoffFirst
	for ; failures > 1 && delay < backoffMost; failures-- {
		delay *= 2
	}
	return min(delay, backoffMost)
}
