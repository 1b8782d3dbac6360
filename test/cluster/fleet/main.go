// Command fleet measures what very many kube-proxies cost an API server, with a real one: many nodes in
// one process, each with the connection, source, plan and engine of a proxy and with a dataplane that
// writes nothing.
//
//	go run ./fleet -nodes 20,50,100
//	go run ./fleet -nodes 20 -crowd 500 -ours ../../bin/kube-proxy
//	go run ./fleet -nodes 20,50 -kubemark
//
// All nodes start at once, as after a power cut, and one after the other, as in an update; they follow
// changes, and the API server is killed and restarted. What that costs is printed for each number of
// nodes, with a straight line through the figures. With -crowd, watches that only count bytes stand for
// the nodes, and one real proxy is in their midst, whose packets say how late it is. With -kubemark,
// upstream's hollow proxies do the same as our nodes, as far as they can be observed.
//
// The API server, etcd and the nodes share one machine, which may be busy: CPU times and bytes count,
// wall times are what they are there.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sluice/test/cluster/apiserver"
)

// options are the flags.
type options struct {
	nodes               []int
	services, endpoints int
	rate                int
	time                time.Duration
	crowd               int
	ours                string
	memory              int
	profile             string
	kubemark            bool
	target              int
	gzip, restart       bool
}

func main() {
	var o options
	nodes := flag.String("nodes", "20,50,100", "numbers of nodes, separated by commas")
	flag.IntVar(&o.services, "services", 1000, "number of Services")
	flag.IntVar(&o.endpoints, "endpoints", 10, "number of endpoints of each Service")
	flag.IntVar(&o.rate, "rate", 20, "changes of EndpointSlices per second")
	flag.DurationVar(&o.time, "time", 20*time.Second, "how long there are changes")
	flag.IntVar(&o.crowd, "crowd", 0, "measure a real proxy among that many nodes of which there are only the watches")
	flag.StringVar(&o.ours, "ours", "../../bin/kube-proxy", "with -crowd and -memory: the proxy; with -memory one or more, separated by commas")
	flag.IntVar(&o.memory, "memory", 0, "measure nothing but the memory of a real proxy, started that many times")
	flag.StringVar(&o.profile, "profile", "", "with -memory: write a heap profile to this file")
	flag.BoolVar(&o.kubemark, "kubemark", false, "measure upstream's hollow proxies as well")
	flag.IntVar(&o.target, "extrapolate", 5000, "number of nodes to extrapolate to")
	flag.BoolVar(&o.gzip, "lists", false, "have the nodes use plain lists, which the server compresses, in place of streamed ones")
	flag.BoolVar(&o.restart, "restart", true, "kill the API server and start it again")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := o.parse(*nodes)
	if err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func (o *options) parse(nodes string) error {
	for text := range strings.SplitSeq(nodes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-nodes: %q is not a number of nodes", text)
		}
		o.nodes = append(o.nodes, n)
	}
	if o.services < 2 || o.services > maxServices || o.endpoints < 1 || o.endpoints > maxEndpoints || o.rate < 1 {
		return fmt.Errorf("use 2 to %d Services with 1 to %d endpoints, and at least one change per second", maxServices, maxEndpoints)
	}
	if o.gzip {
		// client-go reads it from the environment.
		return os.Setenv("KUBE_FEATURE_WatchListClient", "false")
	}
	return nil
}

func run(ctx context.Context, o options) error {
	binaries, err := apiserver.Build(ctx, func(what string) { fmt.Println(what) })
	if err != nil {
		return err
	}
	fmt.Printf("Creating %d Services with %d endpoints each at a real API server\n", o.services, o.endpoints)
	c, err := newCluster(ctx, binaries, o)
	if err != nil {
		return err
	}
	defer c.close()
	if o.memory > 0 {
		return c.measureMemory(ctx)
	}
	if o.crowd > 0 {
		return c.measureCrowd(ctx)
	}
	var all []figures
	for _, n := range o.nodes {
		fmt.Printf("%d nodes\n", n)
		f, err := c.measure(ctx, n)
		if err != nil {
			report(os.Stdout, all, o.target)
			return fmt.Errorf("%d nodes: %w", n, err)
		}
		all = append(all, f)
	}
	report(os.Stdout, all, o.target)
	if !o.kubemark {
		return nil
	}
	return c.measureKubemark(ctx, binaries.Upstream)
}
