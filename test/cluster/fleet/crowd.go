package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"sluice/test/cluster/apiserver"
	"sluice/test/cluster/process"
	"sluice/test/cluster/tunnel"
	"sluice/test/lab"
)

// watched is the Service whose packets are looked at.
const watched = 0

// generations are the pods behind it in turns, and the names that they answer with.
var generations = [2]struct{ address, name string }{{"10.244.1.1", "pod1"}, {"10.244.1.2", "pod2"}}

// crowd are watches of many nodes that only count bytes.
type crowd struct {
	bytes, open, ended atomic.Int64
	cancel             context.CancelFunc
	running            sync.WaitGroup
}

// startCrowd opens the three watches of each node, on a connection of its own.
func (c *cluster) startCrowd(ctx context.Context, nodes int) (*crowd, error) {
	raiseFileLimit()
	config, err := c.server.Config(apiserver.KubeProxy)
	if err != nil {
		return nil, err
	}
	list, err := c.client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	cr := &crowd{}
	open, cancel := context.WithCancel(context.Background())
	cr.cancel = cancel
	err = c.inParallel(ctx, nodes, func(ctx context.Context, i int) error {
		client, err := ownConnection(config)
		if err != nil {
			return err
		}
		for path, query := range map[string]url.Values{
			"/api/v1/services":                         {"labelSelector": {"!service.kubernetes.io/service-proxy-name"}, "fieldSelector": {"spec.clusterIP!=None"}},
			"/apis/discovery.k8s.io/v1/endpointslices": {"labelSelector": {"!service.kubernetes.io/headless"}},
			"/api/v1/nodes":                            {"fieldSelector": {"metadata.name=" + nodeName(i)}},
		} {
			query.Set("watch", "true")
			query.Set("allowWatchBookmarks", "true")
			query.Set("timeoutSeconds", "3600")
			query.Set("resourceVersion", list.ResourceVersion)
			if err := cr.watch(open, client, config.Host+path+"?"+query.Encode()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		cr.stop()
		return nil, err
	}
	return cr, nil
}

// ownConnection returns a client that shares its connection with no other one.
func ownConnection(config *rest.Config) (*http.Client, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	tls.NextProtos = []string{"h2"}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true, MaxConnsPerHost: 1}}, nil
}

func (cr *crowd) watch(ctx context.Context, client *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/vnd.kubernetes.protobuf;stream=watch")
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	cr.open.Add(1)
	cr.running.Go(func() {
		defer answer.Body.Close()
		buffer := make([]byte, 4<<10)
		for {
			n, err := answer.Body.Read(buffer)
			cr.bytes.Add(int64(n))
			if err != nil {
				if !errors.Is(err, context.Canceled) && !errors.Is(err, io.EOF) {
					cr.ended.Add(1)
				}
				return
			}
		}
	})
	return nil
}

func (cr *crowd) stop() {
	cr.cancel()
	cr.running.Wait()
}

func raiseFileLimit() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		l.Cur = l.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
	}
}

// measureCrowd measures how late the packets of a real proxy are that is one among many nodes.
func (c *cluster) measureCrowd(ctx context.Context) error {
	l, err := lab.New()
	if err != nil {
		return err
	}
	defer l.Close()
	p, err := c.startProxy(ctx, l, c.ours)
	if err != nil {
		return err
	}
	defer p.close()
	for _, nodes := range []int{0, c.crowd} {
		if err := c.timePackets(ctx, l, nodes); err != nil {
			return fmt.Errorf("among %d nodes: %w", nodes, err)
		}
	}
	return nil
}

// realProxy is the real binary, on node1 of a lab.
type realProxy struct {
	*process.Process
	way *tunnel.Tunnel
}

func (p *realProxy) close() {
	_ = p.Kill()
	_ = p.way.Close()
}

// startProxy starts the proxy and waits until the watched Service answers.
func (c *cluster) startProxy(ctx context.Context, l *lab.Lab, binary string) (_ *realProxy, err error) {
	p := &realProxy{}
	host, err := l.Host("node1")
	if err != nil {
		return nil, err
	}
	if p.way, err = tunnel.Open(host, c.server.Addr(), c.server.Addr()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = p.way.Close()
		}
	}()
	if err := c.createNode(ctx, "node1", "192.0.2.10"); err != nil {
		return nil, err
	}
	if err := c.update(ctx, watched, []string{generations[0].address}); err != nil {
		return nil, err
	}
	dir, err := l.TempDir()
	if err != nil {
		return nil, err
	}
	binary, err = filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	p.Process, err = process.Start(host, filepath.Join(dir, "log"), binary, "--kubeconfig", c.kubeconfig, "--hostname-override", "node1", "--proxy-mode", "nftables",
		"--cluster-cidr", lab.ClusterCIDRs[0].String()+","+lab.ClusterCIDRs[1].String(), "--profiling",
		"--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "0s", "--conntrack-tcp-timeout-close-wait", "0s")
	if err != nil {
		return nil, err
	}
	if err := c.answers(ctx, l, 0); err != nil {
		return nil, errors.Join(err, errors.New(p.Tail()), p.Kill())
	}
	return p, nil
}

// timePackets measures how long the packets of the watched Service take to change, while others change at
// the rate and a crowd watches.
func (c *cluster) timePackets(ctx context.Context, l *lab.Lab, nodes int) error {
	begin := time.Now()
	cr, err := c.startCrowd(ctx, nodes)
	if err != nil {
		return err
	}
	defer cr.stop()
	opened := time.Since(begin)
	pid := c.server.PID()
	before, err := cpuTime(pid)
	if err != nil {
		return err
	}
	bytes, begin := cr.bytes.Load(), time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	changes := 0
	go func() {
		var err error
		changes, err = c.changeFor(ctx, c.time)
		done <- err
	}()
	var took []time.Duration
	for i := 1; ; i++ {
		select {
		case err = <-done:
		default:
			err = c.update(ctx, watched, []string{generations[i%2].address})
			sent := time.Now()
			if err == nil {
				err = c.answers(ctx, l, i%2)
			}
			took = append(took, time.Since(sent))
			if err == nil {
				continue
			}
		}
		break
	}
	if err != nil {
		return err
	}
	after, err := cpuTime(pid)
	if err != nil {
		return err
	}
	rss, err := memory(pid, "VmRSS:")
	if err != nil {
		return err
	}
	wall := time.Since(begin)
	slices.Sort(took)
	all := changes + len(took)
	fmt.Printf("among %d nodes: %d watches opened in %.1f s, %d broken; %.1f changes/s; written to packets p50 %.1f ms, p99 %.1f ms, longest %.1f ms (of %d); "+
		"API server %.2f cores, %.0f MB; %.2f kB for each node and change\n",
		nodes, cr.open.Load(), opened.Seconds(), cr.ended.Load(), float64(all)/wall.Seconds(),
		quantile(took, 0.5).Seconds()*1e3, quantile(took, 0.99).Seconds()*1e3, took[len(took)-1].Seconds()*1e3, len(took),
		(after-before).Seconds()/wall.Seconds(), rss, float64(cr.bytes.Load()-bytes)/1e3/float64(max(1, nodes*all)))
	return nil
}

// answers waits until the watched Service answers with a generation.
func (c *cluster) answers(ctx context.Context, l *lab.Lab, generation int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	flow := lab.Flow{From: "pod3", Protocol: lab.TCP, To: serviceAddr(watched), Timeout: 50 * time.Millisecond}
	for {
		o := l.Connect(ctx, flow)
		if o.Kind == lab.Answered && o.By == generations[generation].name {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%v: %v: %w", flow, o, err)
		}
	}
}
