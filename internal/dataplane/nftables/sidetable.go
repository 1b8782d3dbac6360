//go:build linux

package nftables

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/nft"
	"sluice/internal/model"
)

// sideTable mirrors a table beside that of the Services, which is there while a set of it has elements:
// what is optional leaves nothing in the kernel while nobody asks for it.
type sideTable[T comparable] struct {
	*layout
	nft.Table
	set    string
	typ    nft.MemberType[T]
	create func(*nft.Batch) // writes the table without elements

	known, exists bool
	members       *nft.Members[T]
	held          map[T]struct{}
}

func newSideTable[T comparable](f model.Family, name, set string, typ nft.MemberType[T]) sideTable[T] {
	l := layouts[f]
	t := sideTable[T]{layout: l, Table: nft.Table{Family: l.nf, Name: name, Comment: tableComment}, set: set, typ: typ}
	t.reset()
	return t
}

func (t *sideTable[T]) reset() {
	t.exists, t.held = false, map[T]struct{}{}
	t.members = nft.NewMembers(t.Table, t.set, t.typ, 0)
}

// follow makes these the elements of the set.
func (t *sideTable[T]) follow(ctx context.Context, conn *nft.Conn, wanted map[T]struct{}) error {
	if len(wanted) == 0 && t.exists || !t.known {
		// What an earlier process left counts for nothing.
		if _, err := removeTables(ctx, conn, []string{t.Name}, t.Family); err != nil {
			return err
		}
		t.known = true
		t.reset()
	}
	for e := range t.held {
		if _, keep := wanted[e]; !keep {
			t.members.Release(e)
			delete(t.held, e)
		}
	}
	for e := range wanted {
		if _, held := t.held[e]; !held {
			t.members.Hold(e)
			t.held[e] = struct{}{}
		}
	}
	const room = 1 << 10
	for t.members.Missing(1) > 0 || t.members.Surplus(1) > 0 {
		b := &nft.Batch{}
		if !t.exists {
			t.create(b)
		}
		t.members.Add(b, room)
		t.members.Remove(b, room)
		if err := conn.Commit(ctx, b); err != nil {
			t.known = false // and made anew
			return err
		}
		t.exists = true
		t.members.Added()
		t.members.Removed()
	}
	return nil
}

// lost has a table made anew that another program removed.
func (t *sideTable[T]) lost(err error) error {
	if errors.Is(err, unix.ENOENT) {
		t.known = false
	}
	return err
}
