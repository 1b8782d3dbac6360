//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"text/tabwriter"
	"time"

	"sluice/test/lab"
)

const (
	streamRounds = 20
	streamTime   = 150 * time.Millisecond // of one round
)

// reportStreams measures how many bytes per second a connection carries, from pod to pod
// across the node: directly, and through a Service. Rounds alternate.
func reportStreams(ctx context.Context, modes []string) error {
	fmt.Printf("\nMegabytes per second of a TCP connection (medians of %d rounds)\n\n", streamRounds)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "mode\tdirect\tthrough a Service\tratio")
	for _, mode := range modes {
		direct, service, err := measureStreams(ctx, mode)
		if err != nil {
			return fmt.Errorf("%s: %w", mode, err)
		}
		fmt.Fprintf(out, "%s\t%.0f\t%.0f\t%.2f\n", mode, median(direct), median(service), ratio(service, direct))
	}
	return out.Flush()
}

func measureStreams(ctx context.Context, mode string) (direct, service []float64, err error) {
	l, err := lab.New()
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	server, err := serverOf(l)
	if err != nil {
		return nil, nil, err
	}
	w := workload{Mode: mode, Services: 1, Endpoints: 1, Target: server.Addr().String()}
	unload, err := load(ctx, l, w)
	if err != nil {
		return nil, nil, err
	}
	defer unload()
	pod, err := l.Host("pod1")
	if err != nil {
		return nil, nil, err
	}
	var listener net.Listener
	if err := pod.Do(func() (err error) { listener, err = net.Listen("tcp4", server.String()); return err }); err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	for range streamRounds {
		for _, to := range []struct {
			at    netip.AddrPort
			rates *[]float64
		}{{server, &direct}, {w.last(), &service}} {
			rate, err := stream(l, to.at)
			if err != nil {
				return nil, nil, fmt.Errorf("stream to %v: %w", to.at, err)
			}
			*to.rates = append(*to.rates, rate)
		}
	}
	return direct, service, nil
}

// stream writes for a while, and returns megabytes per second until all was received.
func stream(l *lab.Lab, to netip.AddrPort) (float64, error) {
	pod, err := l.Host("pod3")
	if err != nil {
		return 0, err
	}
	var conn net.Conn
	if err := pod.Do(func() (err error) { conn, err = net.DialTimeout("tcp4", to.String(), time.Second); return err }); err != nil {
		return 0, err
	}
	defer conn.Close()
	chunk, sent := make([]byte, 256<<10), 0
	begin := time.Now()
	for time.Since(begin) < streamTime {
		n, err := conn.Write(chunk)
		if sent += n; err != nil {
			return 0, err
		}
	}
	err = conn.(*net.TCPConn).CloseWrite()
	if _, last := conn.Read(make([]byte, 1)); !errors.Is(last, io.EOF) {
		err = errors.Join(err, last)
	}
	return float64(sent) / 1e6 / time.Since(begin).Seconds(), err
}
