package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/internal/testkit"
)

// Pool hands running servers from one user to the next, because starting one takes
// longer than most of what is done with it.
type Pool struct {
	mu   sync.Mutex
	idle []*Server
}

// Take returns a server like a new one with these options.
func (p *Pool) Take(ctx context.Context, o Options) (*Server, error) {
	if s := p.find(o); s != nil {
		return s, nil
	}
	return Start(ctx, o)
}

func (p *Pool) find(o Options) *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.idle {
		if reflect.DeepEqual(s.asked, o) {
			p.idle[i] = p.idle[len(p.idle)-1]
			p.idle = p.idle[:len(p.idle)-1]
			return s
		}
	}
	return nil
}

// Give takes a server back that nobody uses any more. One that has been stopped or has lost its
// history is not as new: it is closed.
func (p *Pool) Give(ctx context.Context, s *Server) error {
	if s.disturbed {
		return s.Close()
	}
	if err := s.reset(ctx); err != nil {
		return errors.Join(fmt.Errorf("make a server as new: %w", err), s.Close())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
	return nil
}

// Close closes the servers that nobody uses.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, s := range p.idle {
		errs = append(errs, s.Close())
	}
	p.idle = nil
	return errors.Join(errs...)
}

// objects are the keys of all objects in the store, with their values. The API server has others there of its own.
func (s *Server) objects(ctx context.Context) (map[string][]byte, error) {
	ctx, cancel := testkit.WithTimeout(ctx, requestTime)
	defer cancel()
	objects := make(map[string][]byte)
	err := s.askStore(ctx, func(c *clientv3.Client) error {
		answer, err := c.Get(ctx, "/registry/", clientv3.WithPrefix())
		if err == nil {
			for _, kv := range answer.Kvs {
				objects[string(kv.Key)] = kv.Value
			}
		}
		return err
	})
	return objects, err
}

// remember keeps what the store holds.
func (s *Server) remember(ctx context.Context) (err error) {
	s.first, err = s.objects(ctx)
	return err
}

// reset gives the store the objects that it had after the start, behind the API server's back,
// as it would be with several API servers, and waits until this one has seen it.
func (s *Server) reset(ctx context.Context) error {
	now, err := s.objects(ctx)
	if err != nil {
		return err
	}
	var changes []clientv3.Op
	for key := range now {
		if _, ok := s.first[key]; !ok {
			changes = append(changes, clientv3.OpDelete(key))
		}
	}
	for key, value := range s.first {
		if !bytes.Equal(now[key], value) && !strings.Contains(key, "leases/") { // which the API server renews
			changes = append(changes, clientv3.OpPut(key, string(value)))
		}
	}
	ctx, cancel := testkit.WithTimeout(ctx, timeout)
	defer cancel()
	err = s.askStore(ctx, func(c *clientv3.Client) error {
		for _, change := range changes {
			if _, err := c.Do(ctx, change); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.api.await(ctx, s.forgotten)
}

// forgotten returns why the API server would still answer from its cache with objects that are gone.
func (s *Server) forgotten(ctx context.Context) error {
	cached, core := metav1.ListOptions{ResourceVersion: "0"}, s.admin.CoreV1()
	nodes, err := core.Nodes().List(ctx, cached)
	if err != nil {
		return err
	}
	services, err := core.Services("").List(ctx, cached)
	if err != nil {
		return err
	}
	slices, err := s.admin.DiscoveryV1().EndpointSlices("").List(ctx, cached)
	if err != nil {
		return err
	}
	if len(nodes.Items) > 0 || len(services.Items) > 1 || len(slices.Items) > 1 {
		return errors.New("it still has other objects than its own Service")
	}
	return nil
}
