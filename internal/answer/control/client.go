package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
)

// maxAnswerBytes is more than any answer has.
const maxAnswerBytes = 64 << 20

// Client sends requests to the proxy behind a socket.
type Client struct {
	path string
	http http.Client
}

// NewClient returns a Client of the proxy behind a socket.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return &Client{path: path, http: http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: answerTimeout}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get requests a page and decodes the answer into a value.
func (c *Client) Get(ctx context.Context, page string, query url.Values, into any) error {
	return c.ask(ctx, http.MethodGet, page, query, nil, into)
}

// Post sends a value to a page and decodes the answer into another.
func (c *Client) Post(ctx context.Context, page string, value, into any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode the question: %w", err)
	}
	return c.ask(ctx, http.MethodPost, page, nil, bytes.NewReader(body), into)
}

func (c *Client) ask(ctx context.Context, method, page string, query url.Values, body io.Reader, into any) error {
	at := url.URL{Scheme: "http", Host: "kube-proxy", Path: page, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, at.String(), body)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return c.unreachable(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("read the answer on %s: %w", c.path, err)
	}
	if response.StatusCode != http.StatusOK {
		var f failure
		if json.Unmarshal(answer, &f) != nil || f.Error == "" {
			f.Error = fmt.Sprintf("%s answers %s to %s: it may be another version of kube-proxy", c.path, response.Status, page)
		}
		return errors.New(f.Error)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("understand the answer on %s: %w", c.path, err)
	}
	return nil
}

// unreachable adds what to do if no proxy answers.
func (c *Client) unreachable(err error) error {
	var cause *url.Error
	if errors.As(err, &cause) {
		err = cause.Err // without the URL, which has no real host
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no proxy answers on %s (%w): kube-proxy must run on this node, and with this --control-socket", c.path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("may not ask the proxy on %s (%w): run the command as root", c.path, err)
	}
	return fmt.Errorf("ask the proxy on %s: %w", c.path, err)
}
