package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"sluice/internal/base/httpserver"
)

// ErrBadRequest is the error of a request that the client has to change.
var ErrBadRequest = errors.New("bad request")

// badRequest marks an error as ErrBadRequest, without changing its text.
type badRequest struct{ error }

func (e badRequest) Unwrap() []error { return []error{e.error, ErrBadRequest} }

// BadRequest marks an error as ErrBadRequest.
func BadRequest(err error) error { return badRequest{err} }

// failure is the answer to a request that failed.
type failure struct {
	Error string `json:"error"`
}

// Page returns a page that answers a query with a value. The query is posted as JSON; or it is in
// the URL of a GET, where parse finds it, unless that is nil. The answer is encoded in full before
// anything is written.
func Page[Query any](parse func(url.Values, *Query) error, answer func(context.Context, *Query) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := new(Query)
		var err error
		switch {
		case r.Method == http.MethodPost:
			err = decode(r.Body, query)
		case r.Method == http.MethodGet && parse != nil:
			err = parse(r.URL.Query(), query)
		default:
			writeError(w, http.StatusMethodNotAllowed, fmt.Errorf("%s is not possible here: post the question", r.Method))
			return
		}
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			writeTooLarge(w, r, large.Limit)
			return
		case err != nil:
			writeError(w, http.StatusBadRequest, fmt.Errorf("understand the question: %w", err))
			return
		}
		httpserver.ReadNoMore(w)
		value, err := answer(r.Context(), query)
		writeAnswer(w, value, err)
	})
}

// decode decodes a query. One with fields that are not known is of a later version, and would
// not get the answer that it is about.
func decode(from io.Reader, query any) error {
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	return d.Decode(query)
}

// Unavailable returns a page that answers everything with an error.
func Unavailable(why func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, http.StatusServiceUnavailable, why())
	})
}

func writeAnswer(w http.ResponseWriter, value any, err error) {
	switch {
	case errors.Is(err, ErrBadRequest):
		writeError(w, http.StatusBadRequest, err)
	case err != nil:
		writeError(w, http.StatusInternalServerError, err)
	default:
		writeJSON(w, http.StatusOK, value)
	}
}

func writeTooLarge(w http.ResponseWriter, r *http.Request, most int64) {
	writeError(w, http.StatusRequestEntityTooLarge,
		fmt.Errorf("the question is too large: %s takes %d bytes at the most; ask about less at a time", r.URL.Path, most))
}

func writeError(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, failure{err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error": "the answer cannot be encoded"}`)
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // fails only if the client is gone
}
