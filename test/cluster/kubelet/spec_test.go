package kubelet

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// What runs as a pod gets no more than the Pod gives it, or else a test of a
// deployment would show nothing.
func TestContainersGetWhatThePodGivesThem(t *testing.T) {
	type given struct {
		Capabilities              []string
		UID                       uint32
		NoNewPrivileges, ReadOnly bool // the latter of the root file system
		Filtered, Masked          bool // system calls, and paths
	}
	runtimeDefault := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	tests := []struct {
		name string
		in   *corev1.SecurityContext
		want given
	}{
		{"nothing said", nil,
			given{Capabilities: kernelNames(defaultCapabilities...), Masked: true}},
		{"one capability for all others", &corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}}},
			given{Capabilities: kernelNames("NET_ADMIN"), Masked: true}},
		{"one capability less", &corev1.SecurityContext{
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"AUDIT_WRITE"}}},
			given{Capabilities: kernelNames(defaultCapabilities[1:]...), Masked: true}},
		{"all restrictions", &corev1.SecurityContext{RunAsUser: ptr.To[int64](7), SeccompProfile: runtimeDefault,
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			given{Capabilities: []string{}, UID: 7, NoNewPrivileges: true, ReadOnly: true, Filtered: true, Masked: true}},
		{"privileged", &corev1.SecurityContext{Privileged: ptr.To(true), SeccompProfile: runtimeDefault},
			given{Capabilities: own(t)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			spec, err := pod().spec(&corev1.Container{Name: "c", SecurityContext: test.in})
			if err != nil {
				t.Fatal(err)
			}
			got := given{
				Capabilities: spec.Process.Capabilities.Bounding, UID: spec.Process.User.UID,
				NoNewPrivileges: spec.Process.NoNewPrivileges, ReadOnly: spec.Root.Readonly,
				Filtered: spec.Linux.Seccomp != nil, Masked: len(spec.Linux.MaskedPaths) > 0,
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCommandIsExpanded(t *testing.T) {
	nodeName := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}
	tests := []struct {
		name string
		in   corev1.Container
		want []string
	}{
		{"of the image", corev1.Container{}, []string{"/proxy"}},
		{"arguments for the image", corev1.Container{Args: []string{"-v"}}, []string{"/proxy", "-v"}},
		{"of the Pod", corev1.Container{Command: []string{"/other", "--node=$(NODE)", "$(UNKNOWN)"},
			Env: []corev1.EnvVar{{Name: "NODE", ValueFrom: nodeName}}}, []string{"/other", "--node=node1", "$(UNKNOWN)"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			process, err := pod().process(&test.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, process.Args); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestConditionsOfSystemCalls(t *testing.T) {
	netAdmin, sysAdmin := "CAP_NET_ADMIN", "CAP_SYS_ADMIN"
	tests := []struct {
		name              string
		in                condition
		admitted, refused bool // as a condition that must hold, and as one that must not
	}{
		{"none", condition{}, true, false},
		{"has it", condition{Caps: []string{netAdmin}}, true, true},
		{"lacks it", condition{Caps: []string{sysAdmin}}, false, false},
		{"lacks one", condition{Caps: []string{netAdmin, sysAdmin}}, false, true},
		{"another machine", condition{Arches: []string{"none"}}, false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			have := []string{netAdmin}
			if got := test.in.admits(have); got != test.admitted {
				t.Errorf("admits: %t", got)
			}
			if got := test.in.rejects(have); got != test.refused {
				t.Errorf("rejects: %t", got)
			}
		})
	}
}

// layoutOf makes an OCI layout with one image, whose program has this content.
func layoutOf(t *testing.T, program string, changed func(layout)) string {
	t.Helper()
	l := layout{}
	add := func(mediaType string, content []byte) map[string]any {
		sum := fmt.Sprintf("%x", sha256.Sum256(content))
		l["/blobs/sha256/"+sum] = File{Content: content}
		return map[string]any{"mediaType": mediaType, "digest": "sha256:" + sum, "size": len(content)}
	}
	text := func(v any) []byte {
		out, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	w.Write(tarOf(t, layout{"/bin/proxy": {Mode: 0o755, Content: []byte(program)}}))
	w.Close()
	layer := add(layerType, zipped.Bytes())
	config := add("", text(map[string]any{"os": "linux", "architecture": runtime.GOARCH,
		"config": map[string]any{"Env": []string{"PATH=/bin"}, "Entrypoint": []string{"/bin/proxy"}}}))
	m := add(manifestType, text(map[string]any{"config": config, "layers": []any{layer}}))
	m["platform"] = map[string]string{"os": "linux", "architecture": runtime.GOARCH}
	all := add(indexType, text(map[string]any{"manifests": []any{m}}))
	all["annotations"] = map[string]string{nameKey: "localhost/it:v1"}
	l["/index.json"] = File{Content: text(map[string]any{"manifests": []any{all}})}
	if changed != nil {
		changed(l)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(file, tarOf(t, l), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func tarOf(t *testing.T, files layout) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: int64(f.Mode), Size: int64(len(f.Content))}); err != nil {
			t.Fatal(err)
		}
		w.Write(f.Content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestImageIsReadFromItsArchive(t *testing.T) {
	want := &Image{Files: map[string]File{"/bin/proxy": {Mode: 0o755, Content: []byte("program")}}, Env: []string{"PATH=/bin"}, Entrypoint: []string{"/bin/proxy"}}
	got, err := ReadImage(layoutOf(t, "program", nil), "localhost/it:v1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := ReadImage(layoutOf(t, "program", nil), "localhost/it:v2"); err == nil {
		t.Error("an image is found under another name")
	}
	damaged := layoutOf(t, "program", func(l layout) {
		for name, f := range l {
			if name != "/index.json" {
				l[name] = File{Mode: f.Mode, Content: append([]byte(" "), f.Content...)}
			}
		}
	})
	if _, err := ReadImage(damaged, "localhost/it:v1"); err == nil {
		t.Error("a damaged image is accepted")
	}
}

// A container sees either the earlier files of a volume or the later ones.
func TestVolumeChangesAtOnce(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []string{"earlier", "later"} {
		if err := publish(dir, map[string]string{"file": want}, 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "file"))
		if err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("there are %v, %v, want the file, the link to the directory and the directory", entries, err)
	}
}

func pod() *Pod {
	return &Pod{
		machine: &Machine{},
		image:   &Image{Entrypoint: []string{"/proxy"}},
		object:  &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node1", PriorityClassName: "system-node-critical"}},
	}
}

func own(t *testing.T) []string {
	t.Helper()
	names, err := ownCapabilities()
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	return names
}

func kernelNames(names ...string) []string {
	var out []string
	for _, name := range names {
		out = append(out, "CAP_"+name)
	}
	return out
}
