package listing

import (
	"fmt"
	"io"
	"strings"

	"sluice/internal/base/printable"
	"sluice/internal/observe/verdict"
)

// maxFrontends is how many frontends a row names.
const maxFrontends = 2

// Write writes a list as a table.
func Write(w io.Writer, l *List) error {
	var t printable.Table
	head := []string{"NAMESPACE", "NAME", "VERDICT", "ENDPOINTS", "LOCAL"}
	if l.Rated {
		head = append(head, "CONN/S", "REFUSED/S")
	}
	t.Row(append(head, "FRONTENDS", "WHY")...)
	for i := range l.Services {
		s := &l.Services[i]
		cells := []string{s.Namespace, s.Name, s.verdict(), fmt.Sprint(s.Endpoints), fmt.Sprint(s.Local)}
		if l.Rated {
			cells = append(cells, perSecond(s.Connections), perSecond(s.Refused))
		}
		t.Row(append(cells, frontends(s.Frontends), s.Why)...)
		for _, p := range s.Problems {
			t.Note("  ! " + p)
		}
	}
	if p := l.Proxy; p.Word != verdict.Serving {
		t.Note("the proxy is " + strings.ToUpper(p.Word.Text()) + ": " + p.Why)
	}
	if l.Unrated != "" {
		t.Note("Note: " + l.Unrated)
	}
	if len(l.Services) < l.Total {
		t.Note(fmt.Sprintf("%d of %s", len(l.Services), printable.Count(l.Total, "Service")))
	}
	return t.Write(w)
}

// verdict is in capitals if no client gets an answer.
func (s *Service) verdict() string {
	if s.Word.Failing() {
		return strings.ToUpper(s.Word.Text())
	}
	return s.Word.Text()
}

func perSecond(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 10:
		return fmt.Sprintf("%.1f", rate)
	}
	return fmt.Sprintf("%.0f", rate)
}

func frontends(keys []string) string {
	var shown []string
	for _, k := range keys[:min(len(keys), maxFrontends)] {
		for _, any := range []string{"0.0.0.0:", "[::]:"} { // node ports answer on many addresses
			if port, ok := strings.CutPrefix(k, any); ok {
				k = "node port " + port
			}
		}
		shown = append(shown, k)
	}
	if more := len(keys) - len(shown); more > 0 {
		shown = append(shown, fmt.Sprintf("+%d", more))
	}
	if len(shown) == 0 {
		return "none"
	}
	return strings.Join(shown, ", ")
}
