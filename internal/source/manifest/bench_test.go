package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/internal/base/filewatch"
	"sluice/internal/model"
	"sluice/internal/source"
)

// benchServices is how many Services the benchmarks have, with five endpoints
// each.
const benchServices = 10000

// benchSink counts events.
type benchSink struct{ events int }

func (s *benchSink) Update(events ...model.Event) { s.events += len(events) }
func (s *benchSink) Synced()                      {}

// BenchmarkLoad loads a hundred files.
func BenchmarkLoad(b *testing.B) {
	dir := benchDir(b, 100)
	b.ReportAllocs()
	for b.Loop() {
		content, err := Load(dir, source.Proxy{})
		if err != nil || len(content.Events) != 2*benchServices {
			b.Fatal(err, content.Problems)
		}
	}
}

// BenchmarkChangedFile changes one of as many files as there are Services: reported
// by the watch, and found by looking at all of them.
func BenchmarkChangedFile(b *testing.B) {
	dir := benchDir(b, 1)
	file := filepath.Join(dir, "05000.yaml")
	text := func(n int) []byte { return benchText(5000, 5001, 20000+n%2) }
	b.Run("notified", func(b *testing.B) { benchChanges(b, dir, file, text, file) })
	b.Run("found", func(b *testing.B) { benchChanges(b, dir, file, text) })
}

// BenchmarkChangedObject changes one Service in a file that holds all.
func BenchmarkChangedObject(b *testing.B) {
	file := filepath.Join(b.TempDir(), "all.yaml")
	texts := [][]byte{benchText(0, benchServices, 20000), benchText(0, benchServices, 20001)}
	benchChanges(b, file, file, func(n int) []byte { return texts[n%2] })
}

// benchChanges has a Source follow a path while a file of it is changed.
func benchChanges(b *testing.B, path, file string, text func(n int) []byte, changed ...string) {
	benchWrite(b, file, text(0))
	time.Sleep(settleTime + 100*time.Millisecond) // or all files are read again
	source := New(Options{Path: path})
	watcher, sink := &filewatch.Watcher{}, &benchSink{}
	source.pass(watcher, sink, true)
	sink.events = 0
	changes := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		changes++
		benchWrite(b, file, text(changes))
		b.StartTimer()
		source.pass(watcher, sink, true, changed...)
	}
	if sink.events != changes {
		b.Fatalf("%d events came of %d changes", sink.events, changes)
	}
}

// benchDir makes a directory of files with some Services each.
func benchDir(b *testing.B, each int) string {
	b.Helper()
	dir := b.TempDir()
	for i := 0; i < benchServices; i += each {
		benchWrite(b, filepath.Join(dir, fmt.Sprintf("%05d.yaml", i)), benchText(i, i+each, i))
	}
	return dir
}

func benchWrite(b *testing.B, file string, text []byte) {
	b.Helper()
	if err := os.WriteFile(file, text, 0o644); err != nil {
		b.Fatal(err)
	}
}

// benchText is a file of Services. The first one has an address of its own.
func benchText(from, to, first int) []byte {
	var text []byte
	for i := from; i < to; i++ {
		ip := i
		if i == from {
			ip = first
		}
		text = fmt.Appendf(text, "---\n%s---\n%s", svc(fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.%d.%d", ip/256, ip%256)), benchSlice(i))
	}
	return text
}

func benchSlice(i int) []byte {
	text := fmt.Appendf(nil, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: s%d-abc\n  labels:\n"+
		"    kubernetes.io/service-name: s%d\naddressType: IPv4\nports:\n- port: 8080\nendpoints:\n", i, i)
	for j := range 5 {
		text = fmt.Appendf(text, "- addresses:\n  - 10.%d.%d.%d\n  conditions:\n    ready: true\n  nodeName: node-%d\n", j, i/256, i%256, j)
	}
	return text
}
