package web

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"sluice/internal/model"
)

// count formats a number with separated thousands.
func count[N int | int64 | uint64](n N) string {
	s := strconv.FormatUint(uint64(max(0, n)), 10)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "\u202f" + s[at:]
	}
	return s
}

// plural returns a noun for a number of things.
func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// perSecond formats a rate, an unknown one as a dash.
func perSecond(rate float64, known bool) string {
	switch {
	case !known:
		return "–"
	case rate == 0:
		return "0"
	case rate < 0.1:
		return "< 0.1"
	case rate < 10:
		return fmt.Sprintf("%.1f", rate)
	}
	return count(int(rate + 0.5))
}

// duration formats a duration in its biggest unit.
func duration(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", max(0, int(d.Seconds())))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// serviceLink is the URL of the page of a Service. The name is a parameter and not in
// the path, so that no name can lead to another page.
func serviceLink(n model.Name) string {
	return "/service?" + url.Values{"namespace": {n.Namespace}, "name": {n.Name}}.Encode()
}
