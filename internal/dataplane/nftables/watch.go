package nftables

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"

	"github.com/go-logr/logr"

	"sluice/internal/nft"
	"sluice/internal/notify"
)

// watch notices when somebody else changes our tables, and keeps in mind what they
// changed. Other people's tables are no business of ours, however often they are
// written.
type watch struct {
	logger  logr.Logger
	monitor *nft.Monitor
	writer  *nft.Conn
	joined  bool // of the goroutine that writes
	ended   chan struct{}

	// disturbed has a token when there are suspects, unwatched when somebody may have
	// changed something that nobody saw.
	disturbed, unwatched notify.Signal

	mu       sync.Mutex
	suspects suspects
	// doubts counts how often others wrote and nobody watched.
	doubts uint64
	deaf   bool // there will be no more notices
}

// manyElements is from how many elements on a round of writing is done with the
// monitor away: the kernel would make a notice of each, which takes as long as
// writing it.
const manyElements = 10_000

func newWatch(netns int, logger logr.Logger, writer *nft.Conn) (*watch, error) {
	m, err := nft.NewMonitor(netns, writer)
	if err != nil {
		return nil, err
	}
	w := &watch{
		logger:    logger,
		monitor:   m,
		writer:    writer,
		ended:     make(chan struct{}),
		disturbed: notify.NewSignal(),
		unwatched: notify.NewSignal(),
	}
	go w.listen()
	return w, nil
}

func (w *watch) listen() {
	defer close(w.ended)
	for {
		err := w.monitor.Next(w.notice)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			// The periodic comparison still finds what happens from here on.
			w.logger.Error(err, "Listening for nftables notifications ended")
			w.mu.Lock()
			w.deaf = true
			w.mu.Unlock()
			return
		}
	}
}

func (w *watch) notice(n nft.Notice) {
	switch {
	case n.Lost:
		w.doubt()
	case slices.Contains(tableNames[:], n.Table) && !slices.Contains(clientMaps, n.Set):
		w.suspect(func(s *suspects) { s.take(n) })
	}
}

// suspect adds to the suspects and says so.
func (w *watch) suspect(add func(*suspects)) {
	w.mu.Lock()
	add(&w.suspects)
	w.mu.Unlock()
	w.disturbed.Notify()
}

// doubt notes that somebody else wrote and nobody knows what.
func (w *watch) doubt() {
	w.mu.Lock()
	w.doubts++
	w.mu.Unlock()
	w.unwatched.Notify()
}

// doubted is how often there was reason for doubt; ok is false if nobody would know.
func (w *watch) doubted() (doubts uint64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubts, !w.deaf
}

// takeSuspects empties the list of suspects.
func (w *watch) takeSuspects() suspects {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.suspects
	w.suspects = suspects{}
	return s
}

// listening starts to listen, if that is not so already.
func (w *watch) listening() {
	if w.joined {
		return
	}
	if err := w.monitor.Join(); err != nil {
		w.logger.V(1).Info("Cannot listen for nftables notifications", "reason", err.Error())
		return
	}
	w.joined = true
}

// during runs f, which writes about that many elements. When these are many,
// nobody listens meanwhile; the ruleset's generation tells afterwards whether
// somebody else was at work.
func (w *watch) during(ctx context.Context, elements int, f func()) {
	if w.joined && elements < manyElements {
		f()
		return
	}
	before, err := w.writer.Generation(ctx)
	commits := w.writer.Commits()
	if w.joined {
		err = errors.Join(err, w.monitor.Leave())
		w.joined = false
	}
	f()
	w.listening()
	after, gerr := w.writer.Generation(ctx)
	if err := errors.Join(err, gerr); err != nil {
		w.logger.V(1).Info("Cannot tell whether somebody else changed nftables", "reason", err.Error())
	}
	if err != nil || gerr != nil || !w.joined || uint64(after-before) != w.writer.Commits()-commits {
		w.doubt()
	}
}

func (w *watch) close() error {
	err := w.monitor.Close()
	<-w.ended
	return err
}
