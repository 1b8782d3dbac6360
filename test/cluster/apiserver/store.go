package apiserver

import (
	"context"
	"fmt"
	"net/netip"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"sluice/internal/testkit"
)

// store is a running etcd.
type store struct {
	clients, peers uint16 // ports
}

func (s store) url() string { return httpURL(s.clients) }

func httpURL(port uint16) string {
	return "http://" + netip.AddrPortFrom(loopback, port).String()
}

// startStore starts etcd and waits until it answers.
func (s *Server) startStore(ctx context.Context) error {
	ctx, cancel := testkit.WithTimeout(ctx, timeout)
	defer cancel()
	var err error
	if s.store.clients, err = freePort(); err != nil {
		return err
	}
	if s.store.peers, err = freePort(); err != nil {
		return err
	}
	peers := httpURL(s.store.peers)
	s.etcd, err = start("etcd", s.options.Binaries.Etcd, s.path("etcd.log"), []string{
		"--name=etcd",
		"--data-dir=" + s.path("etcd"),
		"--listen-client-urls=" + s.store.url(),
		"--advertise-client-urls=" + s.store.url(),
		"--listen-peer-urls=" + peers,
		"--initial-advertise-peer-urls=" + peers,
		"--initial-cluster=etcd=" + peers,
		"--unsafe-no-fsync", // the data need not survive the machine
		"--log-level=warn",
	})
	if err != nil {
		return err
	}
	return s.etcd.await(ctx, func(ctx context.Context) error {
		_, err := s.revision(ctx)
		return err
	})
}

// Compact makes etcd drop all history, so that watches can no longer start at an
// old resource version. A running API server still has its own cache of recent
// changes.
func (s *Server) Compact(ctx context.Context) error {
	s.disturbed = true
	revision, err := s.revision(ctx)
	if err != nil {
		return err
	}
	return s.askStore(ctx, func(c *clientv3.Client) error {
		_, err := c.Compact(ctx, revision, clientv3.WithCompactPhysical())
		return err
	})
}

// revision returns the revision of the store.
func (s *Server) revision(ctx context.Context) (int64, error) {
	var revision int64
	ctx, cancel := testkit.WithTimeout(ctx, requestTime)
	defer cancel()
	err := s.askStore(ctx, func(c *clientv3.Client) error {
		status, err := c.Status(ctx, s.store.url())
		if err == nil {
			revision = status.Header.Revision
		}
		return err
	})
	return revision, err
}

func (s *Server) askStore(ctx context.Context, ask func(*clientv3.Client) error) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.store.url()}, Context: ctx, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	if err := ask(client); err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	return nil
}
