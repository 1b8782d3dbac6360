package nftables

import (
	"context"
	"errors"
	"maps"
	"slices"

	"sluice/internal/nft"
)

// verifyTries is how often a comparison is begun anew because the ruleset
// changed under it.
const verifyTries = 5

// Verify compares the kernel with the mirror, unless it can tell that nobody
// but us wrote to nftables since it last did: reading very many elements takes
// the kernel a second and more.
func (d *Dataplane) Verify(ctx context.Context) (bool, error) {
	now, err := d.moment(ctx)
	if err != nil {
		return true, err
	}
	if last := d.verified.Load(); last != nil && last.onlyUsSince(now) {
		return true, nil
	}
	good, err := d.compare(ctx)
	if good && err == nil {
		d.verified.Store(now)
	}
	return good, err
}

// moment is a version of the ruleset, and how many versions we made so far.
type moment struct {
	generation uint32
	commits    uint64
}

func (d *Dataplane) moment(ctx context.Context) (*moment, error) {
	// A transaction of ours between the two readings counts as somebody else's,
	// which costs a comparison and no more.
	commits := d.writer.Commits()
	generation, err := d.reader.Generation(ctx)
	return &moment{generation, commits}, err
}

func (m *moment) onlyUsSince(now *moment) bool {
	return uint64(now.generation-m.generation) == now.commits-m.commits
}

// compare reads our tables and holds them against the mirror. While changes are
// being written, it judges only what they do not touch; the rest is for the
// next time.
func (d *Dataplane) compare(ctx context.Context) (bool, error) {
	var err error
	for range verifyTries {
		var ok bool
		if ok, err = d.compareOnce(ctx); !errors.Is(err, nft.ErrInterrupted) {
			return ok, err
		}
	}
	return true, err
}

func (d *Dataplane) compareOnce(ctx context.Context) (bool, error) {
	d.mu.Lock()
	tables, round := d.tables, d.round
	d.mu.Unlock()
	for _, t := range tables {
		ours, err := ourTables(ctx, d.reader, t.layout)
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(ours, func(o nft.Table) bool { return o.Name == t.Name && !o.Dormant }) {
			return false, nil
		}
		have, err := readContents(ctx, d.reader, t.layout, t.Table)
		if err != nil {
			return false, err
		}
		if !d.matches(t, have, round) {
			return false, nil
		}
	}
	return true, nil
}

// matches compares what was read since a round began with the mirror.
func (d *Dataplane) matches(t *table, have *contents, round uint64) bool {
	d.mu.Lock()
	quiet := d.round == round
	mirror := maps.Clone(t.frontends)
	same := !quiet || t.sameBesides(have)
	d.mu.Unlock()
	if !same {
		return false
	}
	for k, f := range mirror {
		if f.round > round {
			continue // written since
		}
		if now := have.frontends[k]; now == nil || !now.same(&f.programmed) {
			return false
		}
	}
	return !quiet || len(have.frontends) == len(mirror) && len(have.junk) == 0
}

// sameBesides compares what is not a frontend's own.
func (t *table) sameBesides(have *contents) bool {
	if len(have.chains) != len(t.chains.present) {
		return false
	}
	for c, tags := range t.chains.present {
		name := c.name()
		if have.chains[name] != c.nft() || !slices.Equal(have.rules[name], tags) {
			return false
		}
	}
	return t.hairpins.same(have.hairpins) &&
		t.clusterIPs.same(have.clusterIPs) &&
		t.nodePortIPs.same(have.nodePortIPs) &&
		t.clusterAffine.endpoints.same(have.clusterAffine) &&
		t.localAffine.endpoints.same(have.localAffine)
}
