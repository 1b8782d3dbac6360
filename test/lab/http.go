//go:build linux

package lab

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"

	"sluice/internal/testkit"
)

// Page is the answer of an HTTP server.
type Page struct {
	Status int
	Text   string // header and body, as they came
	Header http.Header
	Body   []byte
}

// Get requests a path by HTTP, with further header lines, such as "Accept: */*".
// The Host is the address, unless these lines have another. The flow must be TCP.
func (l *Lab) Get(f Flow, path string, header ...string) (Page, error) {
	s, err := l.Open(f)
	if err != nil {
		return Page{}, err
	}
	defer s.Close()
	page, err := s.get(path, header)
	if err != nil {
		return Page{}, fmt.Errorf("get %s on %v: %w", path, f, err)
	}
	return page, nil
}

func (s *Session) get(path string, header []string) (Page, error) {
	if err := s.conn.SetDeadline(testkit.Deadline(s.conn.timeout)); err != nil {
		return Page{}, err
	}
	lines := append([]string{fmt.Sprintf("GET %s HTTP/1.1", path), "Connection: close"}, header...)
	if !slices.ContainsFunc(header, func(line string) bool { return strings.HasPrefix(line, "Host:") }) {
		lines = append(lines, fmt.Sprintf("Host: %v", s.flow.To))
	}
	if _, err := io.WriteString(s.conn, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		return Page{}, err
	}
	response, err := http.ReadResponse(bufio.NewReader(io.LimitReader(s.conn, 1<<20)), nil)
	if err != nil {
		return Page{}, err
	}
	defer response.Body.Close()
	text, err := httputil.DumpResponse(response, true)
	if err != nil {
		return Page{}, err
	}
	body, err := io.ReadAll(response.Body)
	return Page{Status: response.StatusCode, Text: string(text), Header: response.Header, Body: body}, err
}
