//go:build linux

package nftables

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"

	"github.com/go-logr/logr"

	"sluice/internal/base/notify"
	"sluice/internal/kernel/nft"
)

// monitor listens for writes of other programs to our tables, and collects them.
type monitor struct {
	logger        logr.Logger
	tables        []string // names of ours
	notifications *nft.Monitor
	writer        *nft.Conn
	joined        bool // of the goroutine that commits
	stopped       chan struct{}

	// disturbed receives when there are foreign writes to repair, missed when there
	// may be some that were not seen.
	disturbed, missed notify.Signal

	mu     sync.Mutex
	writes foreignWrites
	// missedCount counts how often others wrote while we did not listen.
	missedCount uint64
	failed      bool // there will be no more notifications
}

// manyElements is from how many elements on a commit is written without listening:
// the kernel would send a notification for each, which takes as long as writing it.
const manyElements = 10_000

func newMonitor(netns int, tables []string, logger logr.Logger, writer *nft.Conn) (*monitor, error) {
	notifications, err := nft.NewMonitor(netns, writer)
	if err != nil {
		return nil, err
	}
	m := &monitor{
		logger:        logger,
		tables:        tables,
		notifications: notifications,
		writer:        writer,
		stopped:       make(chan struct{}),
		disturbed:     notify.NewSignal(),
		missed:        notify.NewSignal(),
	}
	go m.receive()
	return m, nil
}

func (m *monitor) receive() {
	defer close(m.stopped)
	for {
		err := m.notifications.Next(m.handle)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			// The periodic comparison still finds what happens from here on.
			m.logger.Error(err, "Listening for nftables notifications ended")
			m.mu.Lock()
			m.failed = true
			m.mu.Unlock()
			return
		}
	}
}

func (m *monitor) handle(n nft.Notice) {
	switch {
	case n.Lost:
		m.miss()
	case slices.Contains(m.tables, n.Table) && !isClientMap(n.Set):
		m.report(func(w *foreignWrites) { w.addNotice(n) })
	}
}

// report adds foreign writes, and signals that there are some.
func (m *monitor) report(add func(*foreignWrites)) {
	m.mu.Lock()
	add(&m.writes)
	m.mu.Unlock()
	m.disturbed.Notify()
}

// miss records that there may be foreign writes that were not seen.
func (m *monitor) miss() {
	m.mu.Lock()
	m.missedCount++
	m.mu.Unlock()
	m.missed.Notify()
}

// countMissed returns how often foreign writes may have been missed; ok is false if
// that is unknown.
func (m *monitor) countMissed() (n uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.missedCount, !m.failed
}

// take returns the foreign writes since the last call.
func (m *monitor) take() foreignWrites {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.writes
	m.writes = foreignWrites{}
	return w
}

// quiet reports whether there is nothing to take.
func (m *monitor) quiet() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes.empty()
}

// listen starts to listen.
func (m *monitor) listen() {
	if m.joined {
		return
	}
	if err := m.notifications.Join(); err != nil {
		m.logger.V(1).Info("Cannot listen for nftables notifications", "reason", err.Error())
		return
	}
	m.joined = true
}

// during runs f, which writes about that many elements. If these are many, it does
// not listen meanwhile; the ruleset's generation shows afterwards whether others
// wrote.
func (m *monitor) during(ctx context.Context, elements int, f func()) {
	if m.joined && elements < manyElements {
		f()
		return
	}
	before, err := m.writer.Generation(ctx)
	commits := m.writer.Commits()
	if m.joined {
		err = errors.Join(err, m.notifications.Leave())
		m.joined = false
	}
	f()
	m.listen()
	after, gerr := m.writer.Generation(ctx)
	if err := errors.Join(err, gerr); err != nil {
		m.logger.V(1).Info("Cannot tell whether other programs changed nftables", "reason", err.Error())
	}
	if err != nil || gerr != nil || !m.joined || uint64(after-before) != m.writer.Commits()-commits {
		m.miss()
	}
}

func (m *monitor) close() error {
	err := m.notifications.Close()
	<-m.stopped
	return err
}
