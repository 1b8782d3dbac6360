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
	to := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, path) }
	return &Client{path: path, http: http.Client{Transport: &http.Transport{DialContext: to}, Timeout: answerTimeout}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Ask posts a query to a page and decodes the answer into a value. A proxy of an earlier version
// takes most queries in the URL only.
func (c *Client) Ask(ctx context.Context, page string, query, into any) error {
	body, err := json.Marshal(query)
	if err != nil {
		return fmt.Errorf("encode the question: %w", err)
	}
	status, err := c.send(ctx, http.MethodPost, page, bytes.NewReader(body), into)
	if status == http.StatusMethodNotAllowed {
		_, err = c.send(ctx, http.MethodGet, page+"?"+inURL(body).Encode(), nil, into)
	}
	return err
}

// inURL returns the fields of a query in JSON as those of a URL.
func inURL(query []byte) url.Values {
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(query))
	d.UseNumber()
	_ = d.Decode(&fields) // what is no object has no fields
	values := url.Values{}
	for name, value := range fields {
		values.Set(name, fmt.Sprint(value))
	}
	return values
}

// send returns the status of the answer, 0 if there is none.
func (c *Client) send(ctx context.Context, method, page string, body io.Reader, into any) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://kube-proxy"+page, body)
	if err != nil {
		return 0, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, c.unreachable(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return 0, fmt.Errorf("read the answer on %s: %w", c.path, err)
	}
	if response.StatusCode != http.StatusOK {
		var f failure
		if json.Unmarshal(answer, &f) != nil || f.Error == "" {
			f.Error = fmt.Sprintf("%s answers %s to %s: it may be another version of kube-proxy", c.path, response.Status, page)
		}
		return response.StatusCode, errors.New(f.Error)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return 0, fmt.Errorf("understand the answer on %s: %w", c.path, err)
	}
	return response.StatusCode, nil
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
		return fmt.Errorf("may not ask the proxy on %s (%w): run the command as %s", c.path, err, mayAsk)
	}
	return fmt.Errorf("ask the proxy on %s: %w", c.path, err)
}
