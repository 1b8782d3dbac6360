//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"sluice/test/lab"
)

func main() {
	binary := flag.String("proxy", "bin/kube-proxy", "path of the kube-proxy to show")
	manifests := flag.String("manifests", "examples", "directory of the example manifests")
	keep := flag.Bool("keep", false, "let the lab and its page stay until interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, options{*binary, *manifests, *keep}); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	binary, examples string
	keep             bool
}

// demo is a lab with a proxy in it, and an output.
type demo struct {
	out       io.Writer
	lab       *lab.Lab
	binary    string
	manifests string // a copy that the demo may change
	socket    string // the control socket of the proxy
	proxy     *lab.Proxy
}

func run(ctx context.Context, out io.Writer, o options) (err error) {
	if err := lab.Sweep(); err != nil {
		return fmt.Errorf("remove leftovers of earlier labs: %w", err)
	}
	manifests, err := copyManifests(o.examples)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(manifests)) }()
	binary, err := filepath.Abs(o.binary)
	if err != nil {
		return err
	}
	run, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(run)) }()
	fmt.Fprint(out, picture)
	l, err := lab.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	d := &demo{out: out, lab: l, binary: binary, manifests: manifests, socket: filepath.Join(run, "kube-proxy.sock")}
	list := steps
	if o.keep {
		list = append(slices.Clone(steps[:len(steps)-1]), keepStep) // instead of the proxy's end
	}
	for i, s := range list {
		fmt.Fprintf(out, "\n%d. %s\n\n", i+1, s.title)
		if err := s.show(d, ctx); err != nil {
			return d.explain(err)
		}
		if ctx.Err() != nil && i < len(list)-1 {
			return errors.New("interrupted")
		}
	}
	fmt.Fprintln(out, "\nThe lab is removed. The rules of this machine were never touched.")
	return nil
}

// explain adds the proxy's log to an error.
func (d *demo) explain(err error) error {
	if d.proxy == nil {
		return err
	}
	return fmt.Errorf("%w\nThe proxy logged:\n%s", err, d.proxy.Log())
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "   "+format+"\n", args...)
}

const picture = `This is a cluster made of network namespaces, with real packets in it:

      client 198.51.100.10                          everything has an IPv6 address too
            |
     -------+-----------+------------------+-------
                        |                  |
          node1 192.0.2.10          node2 192.0.2.20
           |        |      |               |
         pod1     pod2   pod3           remote1
   10.244.1.1       .2     .3        10.244.2.1

The proxy runs on node1. Every pod answers with its name and the address it sees.
`
