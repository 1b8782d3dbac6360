package kubernetes

import (
	"crypto/x509"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

// connection aggregates the success of requests for all kinds. An outage begins
// with the first that fails and ends when none does any more.
type connection struct {
	logger logr.Logger
	clock  clock.Clock

	mu        sync.Mutex
	answered  bool             // at least once
	failing   map[string]error // by kind
	since     time.Time        // start of the current outage, or of the time without one
	full      map[string]error // kinds of which something had no room
	absent    map[string]Absence
	resources map[string]string // group version and resource by kind
}

// Absence is a kind that the proxy works without.
type Absence struct {
	Kind   string
	Reason string
	Remedy string
}

func newConnection(logger logr.Logger, clk clock.Clock) *connection {
	return &connection{
		logger: logger, clock: clk, failing: map[string]error{}, full: map[string]error{}, since: clk.Now(),
		absent: map[string]Absence{}, resources: map[string]string{},
	}
}

func (c *connection) reached(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, failed := c.failing[kind]
	delete(c.failing, kind)
	if len(c.failing) > 0 || c.answered && !failed {
		return
	}
	now := c.clock.Now()
	if failed {
		c.logger.Info("Connected to the API server again", "after", now.Sub(c.since))
	} else {
		c.logger.Info("Connected to the API server")
	}
	c.answered, c.since = true, now
}

func (c *connection) failed(kind string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failing) == 0 {
		c.since = c.clock.Now()
		c.logger.Error(err, "Cannot reach the API server, trying again for as long as it takes; what is known stays in force",
			"kind", kind, "since", c.since, "remedy", remedy(err))
	}
	c.failing[kind] = err
}

// setFull records that something of a kind had no room, with nil that all had.
func (c *connection) setFull(kind string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := c.full[kind]
	switch {
	case err != nil && !was:
		c.logger.Error(err, "Too many objects for the memory of this proxy; what is known stays in force", "kind", kind, "remedy", remedy(err))
	case err == nil && was:
		c.logger.Info("All objects have room again", "kind", kind)
	}
	if delete(c.full, kind); err != nil {
		c.full[kind] = err
	}
}

func (c *connection) setAbsent(a Absence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.absent[a.Kind] != a {
		c.absent[a.Kind] = a
		c.logger.Info("Going on without a kind of object", "kind", a.Kind, "reason", a.Reason, "remedy", a.Remedy)
	}
}

// setListed records that a kind was listed completely, and by which API.
func (c *connection) setListed(kind string, a *api, older bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.absent[kind]; ok {
		delete(c.absent, kind)
		c.logger.Info("The API server lets the proxy list this kind of object now", "kind", kind)
	}
	resource := a.groupVersion + " " + a.resource
	if older && c.resources[kind] != resource {
		c.logger.Info("The API server lacks a newer API, using an older one", "kind", kind, "version", a.groupVersion, "resource", a.resource)
	}
	c.resources[kind] = resource
}

func (c *connection) status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Connected: c.answered && len(c.failing) == 0 && len(c.full) == 0, Since: c.since}
	for _, errs := range []map[string]error{c.full, c.failing} {
		for _, kind := range slices.Sorted(maps.Keys(errs)) {
			s.Reason, s.Remedy = errs[kind], remedy(errs[kind])
			break
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(c.absent)) {
		s.Without = append(s.Without, c.absent[kind])
	}
	return s
}

func remedy(err error) string {
	var invalid x509.CertificateInvalidError
	var full *noRoomError
	switch {
	case errors.As(err, &full):
		return full.remedy()
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "set certificate-authority in the kubeconfig to a file that has the certificate of the authority that signed the server's; a changed file is read again within 5 minutes"
	case errors.As(err, new(x509.HostnameError)):
		return "reach the server by a name or address that its certificate contains, or have it added there"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the server's certificate, and compare the clocks of both machines"
	case apierrors.IsForbidden(err):
		return "allow the proxy's user to list and watch this kind, as ClusterRole system:node-proxier does"
	case apierrors.IsUnauthorized(err):
		return "give the proxy credentials that the server accepts"
	}
	return "see that the server runs, and that this node can reach it"
}
