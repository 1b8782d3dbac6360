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
	// but a slow connection may need longer to transfer the answer.
	listTimeout = 5 * time.Minute
	// backoffResetAfter is the time without a retry after which the backoff is
	// reset.
	backoffResetAfter = 30 * time.Second
)

// retry is the pause before a failed request is repeated: one to two times the
// duration, which doubles up to the cap. A server that comes back is found
// within seconds; the jitter keeps the nodes of a cluster from sending requests
// at the same time. The server limits the load itself, by 429 and Retry-After.
var retry = wait.Backoff{Duration: 400 * time.Millisecond, Factor: 2, Jitter: 1, Cap: 3 * time.Second, Steps: 10}

// Options configures a Source. Client and NodeName are required.
type Options struct {
	Client   clientset.Interface
	NodeName string // the one Node that is used
	Logger   logr.Logger
	Clock    clock.WithTicker // the real one if nil
	// ResyncPeriod is how often an API that the server lacks is looked for
	// again, 15 minutes if 0. Nothing else is repeated: the sink keeps what it
	// got.
	ResyncPeriod time.Duration

	retry       wait.Backoff
	listTimeout time.Duration
}

// Source follows an API server.
//
// For each kind a follower runs a client-go reflector. A reflector collects a
// whole list before it stores it, which would hold all API objects of a cluster
// in memory at a time. So listWatch wraps its requests: each object becomes a
// small record as soon as it is decoded, and the reflector only ever sees
// records. The wrapped watch (recordWatch) also resumes a watch that the server
// ended, without a new list. The reflector puts records into a store, which
// passes differences to the sink through the outlet.
type Source struct {
	options    Options
	connection *connection
	outlet     *outlet
}

// New returns a Source that has not sent any request yet.
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

// Run passes what the server holds to the sink and follows it until the context
// ends. It never fails: an unavailable server is asked again. Once Run has
// returned the sink gets nothing more. Run is called once.
func (s *Source) Run(ctx context.Context, sink model.Sink) error {
	kinds := kindsOf(s.options.Client, s.options.NodeName)
	s.outlet.open(sink, kinds)
	defer s.outlet.close()

	// The connection aggregates errors of single requests; what the client
	// libraries log about them is for debugging only.
	ctx = klog.NewContext(ctx, s.options.Logger.V(1))
	for _, k := range kinds {
		// Run does not wait for the followers to end: some pauses of the client
		// libraries do not heed the context. The outlet is closed for them.
		go s.newFollower(k).run(ctx)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-s.outlet.complete:
	}
	s.options.Logger.Info("Received everything from the API server")
	// The first lists leave a lot of garbage, and the runtime would keep the
	// memory for a heap that never gets that large again.
	debug.FreeOSMemory()
	<-ctx.Done()
	return nil
}

// Status is the state of the connection to the API server.
type Status struct {
	// Connected says that the server has answered, and that the last request
	// for each kind succeeded.
	Connected bool
	// Since is when Connected last changed.
	Since time.Time
	// Reason is why requests fail, if they do, and Remedy what to do about it.
	Reason error
	Remedy string
	// Waiting are the kinds that are not listed yet. The sink is in sync when
	// there are none.
	Waiting []string
	// Without are the kinds that the proxy works without, because the server
	// does not have them or does not let the proxy list them.
	Without []Absence
}

// Status returns the state of the connection. It may be called at any time.
func (s *Source) Status() Status {
	status := s.connection.status()
	status.Waiting = s.outlet.waitingFor()
	return status
}

// Connected reports whether the server answers as it should.
func (s *Source) Connected() bool { return s.connection.status().Connected }
