package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// JSON returns a page that answers a GET with a value. It is encoded in full before
// anything is written.
func JSON(answer func(context.Context, url.Values) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			writeError(w, http.StatusMethodNotAllowed, fmt.Errorf("%s is not possible here, only GET", r.Method))
			return
		}
		value, err := answer(r.Context(), r.URL.Query())
		writeAnswer(w, value, err)
	})
}

// PostedJSON returns a page that answers a POST of a value with another.
func PostedJSON[Question any](answer func(context.Context, *Question) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			writeError(w, http.StatusMethodNotAllowed, fmt.Errorf("%s is not possible here, only POST", r.Method))
			return
		}
		question := new(Question)
		var large *http.MaxBytesError
		switch err := json.NewDecoder(r.Body).Decode(question); {
		case errors.As(err, &large):
			writeTooLarge(w, r, large.Limit)
			return
		case err != nil:
			writeError(w, http.StatusBadRequest, fmt.Errorf("understand the question: %w", err))
			return
		}
		httpserver.ReadNoMore(w)
		value, err := answer(r.Context(), question)
		writeAnswer(w, value, err)
	})
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
