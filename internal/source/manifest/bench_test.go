package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkLoad loads 10,000 Services with five endpoints each, spread over a
// hundred files.
func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	for file := range 100 {
		var text []byte
		for i := file * 100; i < file*100+100; i++ {
			text = fmt.Appendf(text, "---\n%s---\n%s", svc(fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.%d.%d", i/256, i%256)), benchSlice(i))
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", file)), text, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		content, err := Load(dir, "")
		if err != nil || len(content.Events) != 20000 {
			b.Fatal(err, content.Problems)
		}
	}
}

func benchSlice(i int) []byte {
	text := fmt.Appendf(nil, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: s%d-abc\n  labels:\n"+
		"    kubernetes.io/service-name: s%d\naddressType: IPv4\nports:\n- port: 8080\nendpoints:\n", i, i)
	for j := range 5 {
		text = fmt.Appendf(text, "- addresses:\n  - 10.%d.%d.%d\n  conditions:\n    ready: true\n  nodeName: node-%d\n", j, i/256, i%256, j)
	}
	return text
}
