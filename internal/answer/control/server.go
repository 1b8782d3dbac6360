package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/base/httpserver"
)

// Limits of requests, beside those of all servers.
const (
	requestTimeout = 20 * time.Second // with the body
	answerTimeout  = 30 * time.Second // includes reading the kernel
	maxBodyBytes   = 64 << 10
	maxRequests    = 8 // concurrent ones; others wait
)

// Options configures a Server.
type Options struct {
	Path   string // of the socket
	Logger logr.Logger
	Clock  clock.Clock // nil for the real one
}

// Server answers on the socket.
type Server struct {
	Options
	mux   *http.ServeMux
	limit chan struct{} // one for each concurrent request
	// admits reports whether a user has access.
	admits func(uid uint32) bool
}

// New returns a Server without pages, which serves nothing until Run.
func New(o Options) *Server {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	own := uint32(os.Geteuid())
	return &Server{
		Options: o,
		mux:     http.NewServeMux(),
		limit:   make(chan struct{}, maxRequests),
		admits:  func(uid uint32) bool { return uid == 0 || uid == own },
	}
}

// Handle adds a page by a pattern of http.ServeMux. It must be called before Run.
func (s *Server) Handle(pattern string, page http.Handler) {
	s.handle(pattern, maxBodyBytes, page)
}

// HandleLarge adds a page with another limit of the body. It answers one request at a
// time, so that at most one such body is in memory.
func (s *Server) HandleLarge(pattern string, most int64, page http.Handler) {
	turn := make(chan struct{}, 1)
	s.handle(pattern, most, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
			page.ServeHTTP(w, r)
		case <-r.Context().Done():
			writeError(w, http.StatusServiceUnavailable, errors.New("too many concurrent requests"))
		}
	}))
}

func (s *Server) handle(pattern string, most int64, page http.Handler) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > most {
			writeTooLarge(w, r, most)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, most) // the header may be wrong
		page.ServeHTTP(w, r)
	})
}

// Run serves until ctx ends, and then returns nil. While it cannot listen, it logs each
// reason once and retries.
func (s *Server) Run(ctx context.Context) error {
	return httpserver.Persist(ctx, s.Clock, httpserver.RetryAfter, s.serve, func(err error) error {
		s.Logger.Info("Cannot answer on the control socket, so that the commands that ask this proxy do not work; trying again",
			"socket", s.Path, "reason", err.Error(), "every", httpserver.RetryAfter, "remedy", "choose another by --control-socket, or none by an empty one")
		return nil
	})
}

// serve listens and answers until ctx ends or the socket breaks.
func (s *Server) serve(ctx context.Context) error {
	socket, err := listen(ctx, s.Path)
	if err != nil {
		return err
	}
	s.Logger.V(1).Info("Answering on the control socket", "socket", s.Path)
	server := httpserver.New(s.guarded(), answerTimeout, s.Logger)
	server.ConnContext, server.ReadTimeout = withPeer, requestTimeout
	return httpserver.Serve(ctx, server, socket, httpserver.Grace)
}

// peerKey is the context key of the peerUser.
type peerKey struct{}

type peerUser struct {
	uid uint32
	err error
}

func withPeer(ctx context.Context, conn net.Conn) context.Context {
	var user peerUser
	user.uid, user.err = peer(conn)
	return context.WithValue(ctx, peerKey{}, user)
}

// guarded checks the user and limits concurrent requests.
func (s *Server) guarded() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _ := r.Context().Value(peerKey{}).(peerUser)
		if user.err != nil || !s.admits(user.uid) {
			s.Logger.V(1).Info("Refused a request", "uid", user.uid, "path", r.URL.Path)
			writeError(w, http.StatusForbidden, fmt.Errorf("user %d may not ask this proxy: run the command as %s", user.uid, mayAsk))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout-httpserver.Grace)
		defer cancel()
		select {
		case s.limit <- struct{}{}:
			defer func() { <-s.limit }()
		case <-ctx.Done():
			writeError(w, http.StatusServiceUnavailable, errors.New("too many concurrent requests"))
			return
		}
		s.mux.ServeHTTP(w, r.WithContext(ctx))
	})
}
