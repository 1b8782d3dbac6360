package perservice

import (
	"context"
	"time"

	"sluice/internal/dataplane"
	"sluice/internal/plan"
)

const (
	// countersAge is for how long counters are good: several who scrape at a
	// time make the kernel list them once.
	countersAge = time.Second
	// countersTimeout is less than anybody who scrapes waits.
	countersTimeout = 5 * time.Second
)

// kernelReader remembers when the kernel was last asked, and what it said if that
// was an error.
type kernelReader struct {
	at        time.Time
	lastError string
}

// readKernel takes in what the kernel counted. What it said before stands if it
// does not answer.
func (b *Book) readKernel(now time.Time) {
	if b.Traffic == nil || !b.ledger.begun || !b.kernel.at.IsZero() && now.Sub(b.kernel.at) < countersAge {
		return
	}
	b.kernel.at = now
	ctx, cancel := context.WithTimeout(context.Background(), countersTimeout)
	defer cancel()
	strays, err := b.Traffic(ctx, b.ledger.count)
	if err != nil {
		if text := err.Error(); text != b.kernel.lastError {
			b.kernel.lastError = text
			b.Logger.Error(err, "Cannot read the connection counters of the kernel")
		}
		return
	}
	b.kernel.lastError = ""
	b.ledger.countStrays(strays)
}

// count takes in what the kernel says of a frontend.
func (l *ledger) count(key plan.Key, now dataplane.Traffic) {
	f := l.frontends[key]
	if f == nil {
		return // we do not know whose it is yet, or any more
	}
	f.port.counted = true
	if !f.based {
		f.based, f.last = true, now
		return
	}
	g := f.gain(now)
	to := l.countsOf(f.service)
	if f.service.own {
		f.port.connections += uint64(g.Connections)
	} else {
		to.connections += uint64(g.Connections)
	}
	for i, n := range g.Refused {
		to.refused[i] += uint64(n)
		l.refused[i] += uint64(n)
	}
}

// gain is what was counted since the last time, of each sort. A counter that
// went back as a whole has started again. A sort that went back was read while
// packets came in, and makes up for it the next time.
func (f *frontend) gain(now dataplane.Traffic) dataplane.Traffic {
	before := f.last
	if now.Attempts < before.Attempts {
		before = dataplane.Traffic{}
	}
	high := now
	high.Connections = max(now.Connections, before.Connections)
	for i := range now.Refused {
		high.Refused[i] = max(now.Refused[i], before.Refused[i])
	}
	f.last = high
	return high.Minus(before)
}

func (l *ledger) countStrays(now dataplane.UnmatchedTraffic) {
	if l.based {
		l.refused[plan.UnknownPort] += gained(l.strays.UnknownPort, now.UnknownPort)
		l.refused[plan.UnallocatedAddress] += gained(l.strays.UnallocatedAddress, now.UnallocatedAddress)
	}
	l.strays, l.based = now, true
}

// gained is what a counter gained. One that went back has started again.
func gained(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}
