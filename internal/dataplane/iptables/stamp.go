package iptables

import (
	"context"
	"errors"
	"hash/maphash"

	"sluice/internal/model"
	"sluice/internal/netns"
	"sluice/internal/nft"
	"sluice/internal/xtables"
)

// stamp is by what one sees, without listing, that somebody wrote.
type stamp struct {
	generation uint32 // of nftables
	// tables are what legacy tells of its tables: how many entries there are and
	// where each hook begins.
	tables [len(watched)]xtables.Info
}

// stamper reads stamps.
type stamper interface {
	stamp(context.Context) (stamp, error)
	// expected is the stamp after an input, if nobody else writes.
	expected(before stamp, t Table, entries int) stamp
	// contents tell what stamps do not, at the price of reading all; nil if stamps
	// tell everything.
	contents(context.Context) (*contents, error)
	// asleep are the tables that packets pass by, and wake has them work again.
	asleep(context.Context) ([]nft.Table, error)
	wake(context.Context, []nft.Table) error
	// listen starts and stops to listen to what others do, and judge tells what it
	// heard of those who made one stamp of another.
	listen(context.Context, bool) error
	judge(from, to stamp) verdict
	Close() error
}

// verdict is what is known of other people's writes.
type verdict int

const (
	unheard  verdict = iota // anything may have happened
	harmless                // they did nothing to what is ours
	harmful                 // they may have
)

// contents are numbers that are others when tables are, by their place in watched.
type contents [len(watched)]uint64

func newStamper(v Variant, netns int, families []model.Family) (stamper, error) {
	if v == NFT {
		return newNFTStamper(netns)
	}
	s := &legacyStamper{sockets: map[model.Family]*xtables.Socket{}, seed: maphash.MakeSeed()}
	return s, s.open(netns, families)
}

// legacyStamper asks the kernel about its tables, through a socket of each
// family.
type legacyStamper struct {
	sockets map[model.Family]*xtables.Socket
	seed    maphash.Seed
}

func (s *legacyStamper) open(ns int, families []model.Family) error {
	return netns.Do(ns, func() error {
		for _, f := range families {
			socket, err := words[f].legacy.Open()
			if err != nil {
				return errors.Join(err, s.Close())
			}
			s.sockets[f] = socket
		}
		return nil
	})
}

func (s *legacyStamper) Close() error {
	var errs []error
	for _, socket := range s.sockets {
		errs = append(errs, socket.Close())
	}
	return errors.Join(errs...)
}

// watched are the tables that stamps are of.
var watched = [...]Table{{model.IPv4, nat}, {model.IPv4, filter}, {model.IPv6, nat}, {model.IPv6, filter}}

func (s *legacyStamper) stamp(context.Context) (out stamp, err error) {
	for i, t := range watched {
		socket := s.sockets[t.Family]
		if socket == nil {
			continue
		}
		if out.tables[i], err = socket.Info(t.Name); err != nil {
			return out, err
		}
	}
	return out, nil
}

// contents are read: who renames a chain, or replaces a rule by one of the same length,
// changes nothing that a stamp has.
func (s *legacyStamper) contents(context.Context) (*contents, error) {
	var out contents
	for i, t := range watched {
		socket := s.sockets[t.Family]
		if socket == nil {
			continue
		}
		var err error
		if out[i], err = socket.Sum(t.Name, s.seed); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

// There is nothing to listen to in legacy, and its tables do not sleep.
func (s *legacyStamper) listen(context.Context, bool) error          { return nil }
func (s *legacyStamper) judge(stamp, stamp) verdict                  { return unheard }
func (s *legacyStamper) asleep(context.Context) ([]nft.Table, error) { return nil, nil }
func (s *legacyStamper) wake(context.Context, []nft.Table) error     { return nil }

// expected has the number of entries that an input leads to. What else is in
// the state cannot be foreseen.
func (s *legacyStamper) expected(before stamp, t Table, entries int) stamp {
	for i, w := range watched {
		if w == t {
			before.tables[i].Entries += uint32(entries)
		}
	}
	return before
}

// sameCounts tells whether two stamps agree in what expected foresees.
func (s stamp) sameCounts(o stamp) bool {
	for i := range s.tables {
		if s.tables[i].Entries != o.tables[i].Entries {
			return false
		}
	}
	return s.generation == o.generation
}
