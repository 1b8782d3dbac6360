//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// keepStep takes the place of the proxy's end, if the lab is to stay for a while.
var keepStep = step{"The lab stays, and you can look around", (*demo).showAround}

// showAround serves the page, which is on a loopback address inside the lab, on one of
// this machine, until the demo is interrupted.
func (d *demo) showAround(ctx context.Context) error {
	node, err := d.lab.Host("node1")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	d.say("The page         http://%v", listener.Addr())
	d.say("The status       %s status --control-socket %s", d.binary, d.socket)
	d.say("The manifests    %s: edit them", d.manifests)
	d.say("\n   Press Ctrl-C to end the demo.")
	for {
		browser, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			var page net.Conn
			err := node.Do(func() (err error) { page, err = net.Dial("tcp", "127.0.0.1:10249"); return err })
			if err != nil {
				browser.Close()
				return
			}
			join(browser, page)
		}()
	}
}

// join copies between two connections until both have ended.
func join(a, b net.Conn) {
	var copying sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		copying.Go(func() {
			_, err := io.Copy(pair[0], pair[1])
			if half, ok := pair[0].(*net.TCPConn); ok {
				err = errors.Join(err, half.CloseWrite())
			}
			if err != nil {
				a.Close()
				b.Close()
			}
		})
	}
	copying.Wait()
	a.Close()
	b.Close()
}
