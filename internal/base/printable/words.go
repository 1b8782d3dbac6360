package printable

import (
	"fmt"
	"strings"
	"time"
)

// maxListed is how many items List names.
const maxListed = 8

// Count is a number and its noun, as "1 endpoint" or "2 endpoints".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// List joins the first few of items with commas, and counts the others.
func List[T any](items []T, text func(T) string) string {
	return ListFirst(items, maxListed, ", ", text)
}

// ListFirst joins at most that many items with a separator, and counts the others.
func ListFirst[T any](items []T, most int, separator string, text func(T) string) string {
	var words []string
	for _, item := range items[:min(len(items), most)] {
		words = append(words, text(item))
	}
	if more := len(items) - most; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, separator)
}

// Attempts describes what has failed since a time and is retried.
func Attempts(n int, since, retry, now time.Time) string {
	return fmt.Sprintf("tried %s in %s, next try in %s", Count(n, "time"), Duration(now.Sub(since)), Duration(retry.Sub(now)))
}

// Duration formats a duration with few digits, a negative one as 0s.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
