//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sluice/test/lab"
)

// showRemoval removes pod3 from web while connections are opened all the time.
func (d *demo) showRemoval(ctx context.Context) error {
	standing, err := d.standingConnection("pod3")
	if err != nil {
		return err
	}
	defer standing.Close()
	s := d.openStream(ctx, []lab.Flow{tcp("pod1", web4), tcp("pod1", web6), tcp("client", webNode4), tcp("client", webNode6)})
	time.Sleep(500 * time.Millisecond)
	at, undo, err := d.keepLines("web.yaml", func(line string) bool {
		return !strings.Contains(line, "["+thirdPod4+"]") && !strings.Contains(line, `["`+thirdPod6+`"]`)
	})
	if err != nil {
		s.close()
		return err
	}
	time.Sleep(500 * time.Millisecond)
	d.reportRemoval(s.close(), at)
	if answer, err := standing.Ask(); err != nil {
		d.say("The connection to pod3 that stood already broke: %v", err)
	} else {
		d.say("A connection that stood before still works, and is with %s.", answer.By)
	}
	return undo()
}

// standingConnection opens connections until one reaches the pod.
func (d *demo) standingConnection(pod string) (*lab.Session, error) {
	for range 1000 {
		s, err := d.lab.Open(tcp("pod1", web4))
		if err != nil {
			return nil, err
		}
		answer, err := s.Ask()
		if err == nil && answer.By == pod {
			return s, nil
		}
		s.Close()
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("none of 1000 connections reached %s", pod)
}

func (d *demo) reportRemoval(attempts []attempt, at time.Time) {
	var before, after []lab.Outcome
	var last time.Time // when the last connection that reached pod3 was begun
	for _, a := range attempts {
		if a.begun.Before(at) {
			before = append(before, a.Outcome)
		} else {
			after = append(after, a.Outcome)
		}
		if a.Kind == lab.Answered && a.By == "pod3" && a.begun.After(last) {
			last = a.begun
		}
	}
	d.say("IPv4 and IPv6, to ClusterIP and node port, before and after the file was written:\n")
	table(d.out, crossTable([]string{"before", "after"}, []map[string]int{tally(before), tally(after)}))
	fmt.Fprintln(d.out)
	if last.After(at) {
		d.say("The last new connection to pod3 was begun %v after the file was written.", round(last.Sub(at)))
	} else {
		d.say("No new connection reached pod3 after the file was written.")
	}
}
