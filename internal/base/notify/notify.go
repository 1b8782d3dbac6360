// Package notify wakes goroutines. Notifying never blocks, and notifications
// coalesce: a goroutine that was busy wakes once, and then sees everything.
package notify

import "sync"

// Signal wakes the goroutine that receives from it.
type Signal chan struct{}

// NewSignal returns a Signal without a pending notification.
func NewSignal() Signal { return make(Signal, 1) }

// Notify wakes the receiver, now or when it next receives.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Mailbox holds a value that goroutines add to until another one takes it. The
// taker receives from the Signal.
type Mailbox[T any] struct {
	Signal
	mu    sync.Mutex // never held across I/O
	value T
}

// NewMailbox returns a Mailbox that holds the zero value.
func NewMailbox[T any]() *Mailbox[T] { return &Mailbox[T]{Signal: NewSignal()} }

// Put calls add to modify the value. If add reports true, there is something to
// take, and the receiver is notified.
func (m *Mailbox[T]) Put(add func(*T) bool) {
	m.mu.Lock()
	some := add(&m.value)
	m.mu.Unlock()
	if some {
		m.Notify()
	}
}

// Take returns the value and resets it to the zero value.
func (m *Mailbox[T]) Take() (taken T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var zero T
	taken, m.value = m.value, zero
	return taken
}
