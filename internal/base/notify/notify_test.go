package notify

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

func TestNotificationsCoalesce(t *testing.T) {
	s := NewSignal()
	for range 3 {
		s.Notify() // must not block
	}
	<-s
	select {
	case <-s:
		t.Error("woken twice")
	default:
	}
	s.Notify()
	<-s
}

func TestMailboxLosesNothing(t *testing.T) {
	const senders, each = 4, 1000
	m := NewMailbox[[]int]()
	var sending sync.WaitGroup
	for sender := range senders {
		sending.Go(func() {
			for i := range each {
				m.Put(func(all *[]int) bool { *all = append(*all, sender*each+i); return true })
			}
		})
	}
	var got []int
	for len(got) < senders*each {
		<-m.Signal
		got = append(got, m.Take()...)
	}
	sending.Wait()
	slices.Sort(got)
	for i, n := range got {
		if i != n {
			t.Fatalf("%d is missing, or there twice", i)
		}
	}
}

func TestPutWithoutNotification(t *testing.T) {
	m := NewMailbox[int]()
	m.Put(func(n *int) bool { *n = 7; return false })
	if len(m.Signal) > 0 {
		t.Error("woken")
	}
	if n := m.Take(); n != 7 {
		t.Errorf("took %d, want 7", n)
	}
	if n := m.Take(); n != 0 {
		t.Errorf("took %d again", n)
	}
}

func ExampleMailbox() {
	m := NewMailbox[[]string]()
	for _, word := range []string{"several", "notes,", "one", "wake-up"} {
		m.Put(func(words *[]string) bool { *words = append(*words, word); return true })
	}
	<-m.Signal
	fmt.Println(m.Take())
	// Output: [several notes, one wake-up]
}
