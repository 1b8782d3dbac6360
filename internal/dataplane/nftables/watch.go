package nftables

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/go-logr/logr"

	"sluice/internal/nft"
)

// watch notices when somebody else changes our tables.
type watch struct {
	logger    logr.Logger
	monitor   *nft.Monitor
	writer    *nft.Conn
	disturbed chan struct{}
	ended     chan struct{}
	joined    bool
}

// manyElements is from how many elements on a round of writing is done with the
// monitor away: the kernel would make a notice of each.
const manyElements = 2_000

func newWatch(netns int, logger logr.Logger, writer *nft.Conn) (*watch, error) {
	m, err := nft.NewMonitor(netns)
	if err != nil {
		return nil, err
	}
	w := &watch{
		logger:    logger,
		monitor:   m,
		writer:    writer,
		disturbed: make(chan struct{}, 1),
		ended:     make(chan struct{}),
	}
	go w.listen()
	return w, nil
}

func (w *watch) listen() {
	defer close(w.ended)
	for {
		err := w.monitor.Next(func(n nft.Notice) {
			ours := slices.Contains(tableNames[:], n.Table) && n.Port != w.writer.Port()
			if n.Lost || ours {
				w.disturb()
			}
		})
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			// The periodic comparison still finds what happens from here on.
			w.logger.Error(err, "Listening for nftables notifications ended")
			return
		}
	}
}

func (w *watch) disturb() {
	select {
	case w.disturbed <- struct{}{}:
	default:
	}
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
	jerr := w.monitor.Join()
	w.joined = jerr == nil
	after, gerr := w.writer.Generation(ctx)
	if err := errors.Join(err, jerr, gerr); err != nil {
		w.logger.V(1).Info("Cannot tell whether somebody else changed nftables", "reason", err.Error())
		return
	}
	if uint64(after-before) != w.writer.Commits()-commits {
		w.disturb()
	}
}

func (w *watch) close() error {
	err := w.monitor.Close()
	<-w.ended
	return err
}
