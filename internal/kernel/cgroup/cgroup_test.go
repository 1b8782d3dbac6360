package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	const mebi = 1 << 20
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing known", nil, 0},
		{"version 2, in a container", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "134217728\n"}, 128 * mebi},
		{"version 2, no limit", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 0},
		{"version 2, at the root", map[string]string{"proc/self/cgroup": "0::/\n"}, 0},
		{"version 2, a pod has less", map[string]string{"proc/self/cgroup": "0::/pods/a/b\n",
			"sys/fs/cgroup/pods/a/b/memory.max": "max\n", "sys/fs/cgroup/pods/a/memory.max": "104857600\n", "sys/fs/cgroup/pods/memory.max": "209715200\n"}, 100 * mebi},
		{"version 1", map[string]string{"proc/self/cgroup": "4:memory:/a\n1:cpu:/\n0::/\n",
			"sys/fs/cgroup/memory/a/memory.stat": "cache 0\nhierarchical_memory_limit 67108864\nhierarchical_memsw_limit 1\n"}, 64 * mebi},
		{"version 1, no limit", map[string]string{"proc/self/cgroup": "4:memory:/a\n",
			"sys/fs/cgroup/memory/a/memory.stat": "hierarchical_memory_limit 9223372036854771712\n"}, 0},
		{"version 1, in a container with the path of the node", map[string]string{"proc/self/cgroup": "4:memory:/kubepods/a\n",
			"sys/fs/cgroup/memory/memory.stat": "hierarchical_memory_limit 67108864\n"}, 64 * mebi},
		{"nonsense", map[string]string{"proc/self/cgroup": "x\n0::/\n", "sys/fs/cgroup/memory.max": "-5\n"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range tt.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := MemoryLimit(root); got != tt.want {
				t.Errorf("the limit is %d, want %d", got, tt.want)
			}
		})
	}
}
