//go:build linux

package coexist

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"sluice/internal/kernel/iptables"
	"sluice/internal/kernel/nft"
	"sluice/internal/model"
)

// Options configures a Watcher.
type Options struct {
	Logger logr.Logger
	Clock  clock.Clock
	// Mark is the bit of the packet mark that requests masquerading; 0 while it is
	// unknown.
	Mark func() uint32
	// Uses finds rules of others that lead into chains of a kube-proxy in iptables mode.
	Uses func(context.Context, *nft.Conn) ([]iptables.Use, error)
	// Period is the time between two checks.
	Period func() time.Duration
}

// Watcher finds rules that rely on a kube-proxy in iptables mode.
type Watcher struct {
	Options
	complaint string // the last error that was logged

	mu         sync.Mutex
	advisories []model.Problem
}

// New returns a Watcher that has not checked yet.
func New(o Options) *Watcher { return &Watcher{Options: o} }

// Advisories returns what the last check found.
func (w *Watcher) Advisories() []model.Problem {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.advisories)
}

// Look checks for such rules.
func (w *Watcher) Look(ctx context.Context) { w.look(ctx, w.survey) }

// Keep repairs KUBE-MARK-MASQ, and checks.
func (w *Watcher) Keep(ctx context.Context) {
	w.look(ctx, func(ctx context.Context, conn *nft.Conn) ([]model.Problem, error) {
		kept, kerr := keepMark(ctx, conn, w.Logger, w.Mark())
		found, err := w.survey(ctx, conn)
		return append(found, kept...), errors.Join(err, kerr)
	})
}

// Run does the same periodically until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.Clock.After(w.Period()):
			w.Keep(ctx)
		}
	}
}

// look replaces the advisories by what is found. After an error it adds to them.
func (w *Watcher) look(ctx context.Context, find func(context.Context, *nft.Conn) ([]model.Problem, error)) {
	found, err := withConn(ctx, find)
	if ctx.Err() != nil {
		return
	}
	w.complain(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		found = slices.Concat(found, slices.DeleteFunc(slices.Clone(w.advisories), func(p model.Problem) bool { return slices.Contains(found, p) }))
	}
	w.advisories = found
}

// complain logs an error unless it is the same as the last one. Only root can see
// whether iptables-legacy is in use, and the proxy may run as another user.
func (w *Watcher) complain(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == "" || text == w.complaint:
	case errors.Is(err, fs.ErrPermission):
		w.Logger.Info("Cannot find out how iptables is used on this node", "reason", text, "remedy", "run the proxy as root; CAP_NET_ADMIN is enough for the rest")
	default:
		w.Logger.Error(err, "Cannot maintain what other programs need of iptables on this node")
	}
	w.complaint = text
}

// attempts is how often tables are read again because others changed them meanwhile.
const attempts = 5

func withConn(ctx context.Context, f func(context.Context, *nft.Conn) ([]model.Problem, error)) (found []model.Problem, err error) {
	conn, err := nft.Dial(0, nft.SendBuffer)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for range attempts {
		if found, err = f(ctx, conn); !errors.Is(err, nft.ErrInterrupted) {
			break
		}
	}
	return found, err
}

// survey finds rules that lead into chains that are no longer updated.
func (w *Watcher) survey(ctx context.Context, conn *nft.Conn) (found []model.Problem, err error) {
	uses, err := w.Uses(ctx, conn)
	for _, u := range uses {
		found = append(found, staleChain(u))
	}
	return found, err
}

// staleChain is the advisory for a rule that leads into a chain that is not updated.
func staleChain(u iptables.Use) model.Problem {
	return model.Problem{
		Object: model.Object{Kind: u.Command()}, Field: fmt.Sprintf("table %s, chain %s", u.Table.Name, u.By),
		Reason: fmt.Sprintf("a rule in it jumps to %s, which nftables mode does not have: the chain stays as an earlier kube-proxy left it, and becomes stale", u.Chain),
		Remedy: fmt.Sprintf("find the rule by %s-save -t %s | grep %s, remove it and restart the proxy, or set mode: iptables", u.Command(), u.Table.Name, u.Chain),
	}
}
