package kubernetes

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sluice/internal/model"
	"sluice/internal/source"
)

const (
	// defaultResync is how often an API that the server lacks is looked for.
	defaultResync = 15 * time.Minute
	// listTimeout bounds one answer to a list. Servers give up after a minute,
	// but a slow connection may need longer to transfer the answer.
	listTimeout = 5 * time.Minute
	// roomPeriod is how often it is looked whether there is room for what had none.
	roomPeriod = 10 * time.Second
	// backoffResetAfter is the time without a retry after which the backoff is
	// reset.
	backoffResetAfter = 30 * time.Second
)

// retry is the pause before a failed request is repeated: one to two times the
// duration, which doubles up to the cap. A server that comes back is found
// within seconds; the jitter keeps the nodes of a cluster from sending requests
// at the same time. The server limits the load itself, by 429 and Retry-After.
var retry = wait.Backoff{Duration: 400 * time.Millisecond, Factor: 2, Jitter: 1, Cap: 3 * time.Second, Steps: 10}

// Options configures a Source. Client and Proxy.NodeName are required.
type Options struct {
	Client clientset.Interface
	Proxy  source.Proxy // that objects are for
	Logger logr.Logger
	Clock  clock.WithTicker // the real one if nil
	// ResyncPeriod is how often an API that the server lacks is looked for
	// again, 15 minutes if 0. Nothing else is repeated: the sink keeps what it
	// got.
	ResyncPeriod time.Duration

	// Room returns how many bytes of memory there are for what objects mean, 0 for no limit; nil if
	// there never is one. What has no room is left out, and nothing is in sync before everything has.
	Room func() int64

	retry       wait.Backoff
	listTimeout time.Duration
	roomPeriod  time.Duration
}

// Source follows an API server.
//
// For each kind a follower runs a client-go reflector. A reflector collects a
// whole list before it stores it, which would hold all API objects of a cluster
// in memory at a time. So listWatch wraps its requests: each object of a list is
// converted as soon as it is decoded and goes to the store directly, and what the
// reflector sees of lists is their versions. The wrapped watch (recordWatch) also
// resumes a watch that the server ended, without a new list. Changes become small
// records, which the reflector puts into the store. It passes differences to the
// sink through the gate.
type Source struct {
	options    Options
	connection *connection
	gate       *sinkGate
	room       *room
}

// New returns a Source that has not sent any request yet.
func New(options Options) *Source {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.ResyncPeriod <= 0 {
		options.ResyncPeriod = defaultResync
	}
	if options.roomPeriod == 0 {
		options.roomPeriod = roomPeriod
	}
	if options.Room == nil {
		options.Room = func() int64 { return 0 }
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
		gate:       newSinkGate(),
		room:       &room{limit: options.Room},
	}
}

// Run passes what the server holds to the sink and follows it until the context
// ends. It never fails: an unavailable server is asked again. Once Run has
// returned the sink gets nothing more. Run is called once.
func (s *Source) Run(ctx context.Context, sink model.Sink) error {
	kinds := kindsOf(s.options.Client, s.options.Proxy)
	s.gate.open(sink, kinds)
	defer s.gate.close()

	// The connection aggregates errors of single requests; what the client
	// libraries log about them is for debugging only.
	ctx = klog.NewContext(ctx, s.options.Logger.V(1))
	for _, k := range kinds {
		// Run does not wait for the followers to end: some pauses of the client
		// libraries do not heed the context. The gate is closed for them.
		go s.newFollower(k).run(ctx)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-s.gate.complete:
	}
	s.options.Logger.Info("Received everything from the API server")
	<-ctx.Done()
	return nil
}

// Status is the state of the connection to the API server.
type Status struct {
	// Connected says that the server has answered, and that the last request
	// for each kind succeeded, and that there was room for all objects.
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
	status.Waiting = s.gate.waitingFor()
	return status
}

// Connected reports whether the server answers as it should.
func (s *Source) Connected() bool { return s.connection.status().Connected }
