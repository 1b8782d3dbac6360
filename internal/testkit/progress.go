package testkit

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// Progress prints what a test is busy with, if someone watches: with -v, or on a terminal.
func Progress(format string, args ...any) {
	if watched() {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}

// Waiting has Progress say what is waited for, once it takes long and now and then after
// that, until done is called.
func Waiting(what string) (done func()) {
	if !watched() {
		return func() {}
	}
	return remind(os.Stderr, what, 5*time.Second, 15*time.Second)
}

// watched reports whether someone reads the output of a test while it runs.
func watched() bool {
	if v := flag.Lookup("test.v"); v == nil || v.Value.String() != "false" {
		return v != nil
	}
	to, err := os.Stderr.Stat()
	return err == nil && to.Mode()&os.ModeCharDevice != 0
}

// remind writes what is waited for after a first while, and again after each next one.
func remind(w io.Writer, what string, first, next time.Duration) (done func()) {
	begin, end := time.Now(), make(chan struct{})
	go func() {
		for pause := first; ; pause = next {
			select {
			case <-end:
				return
			case <-time.After(pause):
				fmt.Fprintf(w, "waiting for %s, %s so far\n", what, time.Since(begin).Round(time.Second))
			}
		}
	}()
	return func() { close(end) }
}
