package kubernetes

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sluice/internal/model"
)

const (
	// defaultResync is how often an API that the server lacks is looked for.
	defaultResync = 15 * time.Minute
	// listTimeout bounds one answer to a list. Servers give up after a minute,
	// but a slow line may need longer for what they sent.
	listTimeout = 5 * time.Minute
	// backoffResetAfter is after which time without a retry the pauses are short again.
	backoffResetAfter = 30 * time.Second
)

// retry is how long to pause before a request is repeated that failed: one to two
// times the duration, which doubles up to the cap. A server that comes back is
// found within seconds; the jitter keeps the nodes of a cluster from meeting it
// all at once. What it can take then it says itself, by 429 and Retry-After.
var retry = wait.Backoff{Duration: 400 * time.Millisecond, Factor: 2, Jitter: 1, Cap: 3 * time.Second, Steps: 10}

// Options are what a Source needs. Client and NodeName are required.
type Options struct {
	Client   clientset.Interface
	NodeName string // the one Node that is used
	Logger   logr.Logger
	Clock    clock.WithTicker // the real one if nil
	// ResyncPeriod is how often an API that the server lacks is looked for
	// again, 15 minutes if 0. Nothing else is repeated: all that was handed over
	// is in the sink's hands.
	ResyncPeriod time.Duration

	retry       wait.Backoff
	listTimeout time.Duration
}

// Source follows an API server.
type Source struct {
	options    Options
	connection *connection
	outlet     *outlet
}

// New returns a Source that has not asked for anything yet.
func New(options Options) *Source {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.ResyncPeriod <= 0 {
		options.ResyncPeriod = defaultResync
	}
	if options.retry.Duration == 0 {
		options.retry = retry
	}
	if options.listTimeout == 0 {
		options.listTimeout = listTimeout
	}
	return &Source{
		options:    options,
		connection: newConnection(options.Logger, options.Clock),
		outlet:     newOutlet(),
	}
}

// Run hands what the server holds to the sink and follows it until the context
// ends. It fails only if the context does: a server that does not answer is
// asked again. Once Run has returned the sink hears nothing more. Run is called
// once.
func (s *Source) Run(ctx context.Context, sink model.Sink) error {
	kinds := kindsOf(s.options.Client, s.options.NodeName)
	s.outlet.open(sink, kinds)
	defer s.outlet.close()

	// What the client libraries have to say about single requests is summed up
	// by the connection; it is of interest to those who look closer only.
	ctx = klog.NewContext(ctx, s.options.Logger.V(1))
	for _, k := range kinds {
		// Nobody waits for the followers to end: some pauses of the client
		// libraries do not heed the context. The outlet is closed for them.
		go s.newFollower(k).run(ctx)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-s.outlet.complete:
	}
	s.options.Logger.Info("Received everything from the API server")
	// The first lists leave a lot of garbage, and the collector would keep the
	// memory for a heap that never gets that large again.
	debug.FreeOSMemory()
	<-ctx.Done()
	return nil
}

// Status is how things stand with the API server.
type Status struct {
	// Connected says that the server has answered, and that the last answer for
	// each kind was a good one.
	Connected bool
	// Since is when that became so, or ceased to be so.
	Since time.Time
	// Reason is why the server could not be used, if it could not, and Remedy what
	// to do about it.
	Reason error
	Remedy string
	// Waiting are the kinds of which nothing was received yet. The sink is in
	// sync when there are none.
	Waiting []string
	// Without are the kinds that the proxy does its work without, because the
	// server does not have them or does not let the proxy list them.
	Without []Absence
}

// Status tells how things stand. It may be called at any time.
func (s *Source) Status() Status {
	status := s.connection.status()
	status.Waiting = s.outlet.waitingFor()
	return status
}

// Connected tells whether the server answers as it should.
func (s *Source) Connected() bool { return s.connection.status().Connected }
