package testkit

import (
	"io"
	"strings"
	"testing"
	"time"
)

func TestLongWaitsAreReported(t *testing.T) {
	read, write := io.Pipe()
	done := remind(write, "the end", time.Millisecond, time.Millisecond)
	for range 2 { // not only once
		line := make([]byte, 100)
		n, err := read.Read(line)
		if err != nil || !strings.HasPrefix(string(line[:n]), "waiting for the end, ") {
			t.Fatalf("%q, %v", line[:n], err)
		}
	}
	done()
	read.Close()
}

func TestShortWaitsAreNot(t *testing.T) {
	read, write := io.Pipe()
	remind(write, "the end", time.Hour, time.Hour)()
	write.Close()
	if text, err := io.ReadAll(read); err != nil || len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
}
