package verdict

import (
	"fmt"
	"strings"
	"time"

	"sluice/internal/engine"
)

// ProxyWord is whether the proxy does its job. Words are part of interfaces and never change.
type ProxyWord string

// The words, the worst first.
const (
	NotServing     ProxyWord = "not-serving"      // this process has programmed nothing, and cannot
	NotYet         ProxyWord = "not-yet"          // it is starting
	ServingThePast ProxyWord = "serving-the-past" // changes do not arrive, or not in the kernel
	Serving        ProxyWord = "serving"          // the kernel follows the source
)

// ProxyWords are all of them, the worst first.
var ProxyWords = [...]ProxyWord{NotServing, NotYet, ServingThePast, Serving}

// Text is the word for people.
func (w ProxyWord) Text() string { return strings.ReplaceAll(string(w), "-", " ") }

// Ready reports whether this process has programmed everything at least once.
func (w ProxyWord) Ready() bool { return w == Serving || w == ServingThePast }

// Proxy is the verdict on the proxy. The names of its fields in JSON are an interface and
// never change.
type Proxy struct {
	Word ProxyWord `json:"verdict"`
	// Why says what is wrong or waited for, and Remedy what to do about it; "" if it serves.
	Why    string    `json:"why,omitempty"`
	Remedy string    `json:"remedy,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

func (p Proxy) String() string {
	if p.Why == "" {
		return p.Word.Text()
	}
	return p.Word.Text() + ": " + p.Why
}

// Facts are what the verdict on the proxy follows from.
type Facts struct {
	engine.Summary
	Now time.Time
	// Waiting is why the proxy does nothing, because another one programs the node; "" otherwise.
	Waiting string
	Source  Source
}

// Source is where the objects come from.
type Source struct {
	// Away says why it cannot be read, "" if it can; Remedy what to do.
	Away, Remedy string
	Since        time.Time
	// Missing says what it has not sent yet, "" if that is all or not known.
	Missing string
}

// OfProxy returns the verdict on the proxy.
func OfProxy(f Facts) Proxy {
	const past = "; what was programmed before stays in force"
	kernel := Proxy{Word: ServingThePast, Since: f.FailingSince}
	if !f.FailingSince.IsZero() {
		kernel.Why = fmt.Sprintf("%s cannot be programmed: %v", f.System, f.LastError)
	} else if f.Behind(f.Now) {
		kernel.Why, kernel.Since = f.System.String()+" has not followed for too long", f.PendingSince
	}
	source := Proxy{Word: ServingThePast, Why: f.Source.Away, Remedy: f.Source.Remedy, Since: f.Source.Since}
	switch started := !f.LastCommit.IsZero(); {
	case f.Waiting != "":
		return Proxy{Word: NotServing, Why: f.Waiting}
	case !started && kernel.Why != "":
		kernel.Word = NotServing
		return kernel
	case !started && source.Why != "":
		source.Word = NotServing
		return source
	case !started && !f.Synced && f.Source.Missing != "":
		return Proxy{Word: NotYet, Why: f.Source.Missing}
	case !started && !f.Synced && len(f.WaitingFor) > 0:
		return Proxy{Word: NotYet, Why: "waiting for " + strings.Join(f.WaitingFor, ", ")}
	case !started:
		return Proxy{Word: NotYet, Why: f.System.String() + " is being programmed for the first time"}
	case kernel.Why != "":
		kernel.Why += past
		return kernel
	case source.Why != "":
		source.Why += past
		return source
	}
	return Proxy{Word: Serving}
}
