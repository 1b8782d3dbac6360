package lab

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"time"
)

// Page is what an HTTP server answered.
type Page struct {
	Status int
	Text   string // header and body, as they came
}

// Get asks for a path by HTTP. The flow must be of TCP.
func (l *Lab) Get(f Flow, path string) (Page, error) {
	s, err := l.Open(f)
	if err != nil {
		return Page{}, err
	}
	defer s.Close()
	page, err := s.get(path)
	if err != nil {
		return Page{}, fmt.Errorf("get %s on %v: %w", path, f, err)
	}
	return page, nil
}

func (s *Session) get(path string) (Page, error) {
	if err := s.conn.SetDeadline(time.Now().Add(s.flow.Timeout)); err != nil {
		return Page{}, err
	}
	if _, err := fmt.Fprintf(s.conn, "GET %s HTTP/1.1\r\nHost: %v\r\nConnection: close\r\n\r\n", path, s.flow.To); err != nil {
		return Page{}, err
	}
	response, err := http.ReadResponse(bufio.NewReader(io.LimitReader(s.conn, 1<<20)), nil)
	if err != nil {
		return Page{}, err
	}
	defer response.Body.Close()
	text, err := httputil.DumpResponse(response, true)
	return Page{Status: response.StatusCode, Text: string(text)}, err
}
