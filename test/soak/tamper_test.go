//go:build linux

package soak

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/internal/testkit"
	"sluice/test/lab"
)

// tamper breaks the rules while no object changes, and waits until they are
// repaired.
func (s *soak) tamper(w *window) error {
	s.quiet.Lock()
	defer s.quiet.Unlock()
	before, err := s.settledRules()
	if err != nil {
		return err
	}
	w.loses, w.forgets = true, true
	began := time.Now()
	what, err := s.breakRules(anything)
	if err != nil {
		return err
	}
	return s.repaired(before, what, began)
}

// settledRules returns the rules once all changes have arrived. The beacon shows one kind
// of object; after trouble of the API server each has its own watch and backoff.
func (s *soak) settledRules() ([]string, error) {
	err := testkit.Poll(followLimit, func() error {
		if !s.api.Followed() {
			return errors.New("not all kinds of objects are watched")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.catchUp(); err != nil {
		return nil, err
	}
	var before []string
	err = testkit.Poll(compareLimit, func() error {
		first, err := s.rules(s.ctx)
		if err != nil {
			return err
		}
		time.Sleep(testkit.Scaled(50 * time.Millisecond))
		if before, err = s.rules(s.ctx); err == nil && !slices.Equal(first, before) {
			err = errors.New("the rules do not come to rest")
		}
		return err
	})
	return before, err
}

// repaired waits until the rules are as before. It is an error if that takes too
// long, but they may still be repaired later.
func (s *soak) repaired(before []string, what string, began time.Time) error {
	var now []string
	err := testkit.Poll(followLimit, func() (err error) {
		if now, err = s.rules(s.ctx); err == nil && !slices.Equal(before, now) {
			err = errors.New("they are not as before")
		}
		return err
	})
	took := time.Since(began)
	s.note("repaired after %.3f s", took.Seconds())
	s.report.follow(s.mode+": repaired", took)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w; before (-) and now (+):\n%s", what, err, differences(before, now))
	case took > s.repairLimit():
		return fmt.Errorf("%s: it took %v until the rules were repaired", what, took)
	}
	time.Sleep(testkit.Scaled(sweepTime))
	return s.removeIntruders(s.ctx)
}

// tamperUnderChange breaks the rules while objects change. Packets show when they
// are repaired.
func (s *soak) tamperUnderChange(w *window) error {
	w.loses, w.forgets = true, true
	began := time.Now()
	what, err := s.breakRules(anything)
	if err != nil {
		return err
	}
	calm := time.Now()
	for time.Since(calm) < time.Second {
		now := time.Now()
		if len(s.traffic.suspicious()) > 0 {
			calm = now
		}
		if now.Sub(began) > s.repairLimit()+time.Second {
			return fmt.Errorf("%s: packets are lost %v later", what, now.Sub(began))
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := s.removeIntruders(s.ctx); err != nil {
		return err
	}
	return s.catchUp()
}

// tamperWhileDown breaks the rules while no proxy can repair them.
func (s *soak) tamperWhileDown(w *window) error {
	s.quiet.Lock()
	defer s.quiet.Unlock()
	before, err := s.settledRules()
	if err != nil {
		return err
	}
	w.loses, w.forgets = true, true
	if err := s.end((*lab.Proxy).Kill); err != nil {
		return err
	}
	var done []string
	for range 1 + s.rng.IntN(3) {
		what, err := s.breakRules(staysConnected)
		if errors.Is(err, errNothing) && len(done) > 0 {
			break // all has been deleted
		}
		if err != nil {
			return err
		}
		done = append(done, what)
	}
	began := time.Now()
	if err := s.start(s.ctx); err != nil {
		return err
	}
	return s.repaired(before, strings.Join(done, "; "), began)
}

// maxRefusals is how many kinds of tampering the kernel may refuse in a row, such
// as deleting a chain in use.
const maxRefusals = 50

var errNothing = errors.New("nothing can be tampered with")

// breakRules tampers with the rules of the mode, and describes how.
func (s *soak) breakRules(allowed func(act) bool) (string, error) {
	refused := errors.New("there is nothing")
	for range maxRefusals {
		a, err := s.randomAct()
		if err != nil {
			return "", err
		}
		if a.what == "" || !allowed(a) {
			continue // there is nothing to do it to
		}
		if _, err = s.run(s.ctx, a.input, a.command...); err == nil {
			s.note("%s: %s", a.what, strings.TrimSpace(strings.Join(a.command, " ")+" "+a.input))
			s.report.count(s.mode, "tampering: "+a.what)
			return a.what + ": " + strings.TrimSpace(strings.Join(a.command, " ")+" "+a.input), nil
		}
		refused = err
	}
	return "", fmt.Errorf("%w: %w", errNothing, refused)
}

func anything(act) bool { return true }

// staysConnected leaves out tampering that can cut a starting proxy off from its
// API server, so that it could not know what to repair.
func staysConnected(a act) bool {
	text := strings.ToLower(a.input + strings.Join(a.command, " "))
	return !strings.Contains(text, "drop")
}

// act is one act of tampering.
type act struct {
	what    string
	command []string
	input   string
}

func (s *soak) randomAct() (act, error) {
	if s.mode == "ipvs" && s.rng.IntN(2) == 0 {
		return s.ipvsAct()
	}
	if hasTable(s.mode) {
		tables, err := s.listTables(s.ctx)
		if err != nil || len(tables) == 0 {
			return act{}, err
		}
		return nftActs[s.rng.IntN(len(nftActs))](s.rng, tables[s.rng.IntN(len(tables))]), nil
	}
	saves, err := s.listSaves(s.ctx, variant(s.mode))
	if err != nil || len(saves) == 0 {
		return act{}, err
	}
	if s.mode == "iptables-nft" && s.rng.IntN(6) == 0 {
		return iptablesNFTAct(s.rng, saves[s.rng.IntN(len(saves))]), nil
	}
	return iptablesActs[s.rng.IntN(len(iptablesActs))](s.rng, saves[s.rng.IntN(len(saves))]), nil
}
