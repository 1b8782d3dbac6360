package kubelet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// specVersion is one that older runtimes know. Nothing here needs a newer one.
const specVersion = "1.0.2"

// spec returns the runtime's configuration of a container.
func (p *Pod) spec(c *corev1.Container) (*specs.Spec, error) {
	process, err := p.process(c)
	if err != nil {
		return nil, err
	}
	mounts, err := p.mounts(c)
	if err != nil {
		return nil, err
	}
	spec := &specs.Spec{
		Version: specVersion,
		Process: process,
		Root:    &specs.Root{Path: "rootfs", Readonly: ptr.Deref(security(c).ReadOnlyRootFilesystem, false)},
		Mounts:  mounts,
		// None of the network: it is the machine's.
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
		}},
	}
	if !privileged(c) {
		spec.Linux.MaskedPaths, spec.Linux.ReadonlyPaths = maskedPaths, readonlyPaths
		spec.Linux.Seccomp, err = p.seccomp(c, process.Capabilities.Bounding)
	}
	return spec, err
}

func (p *Pod) process(c *corev1.Container) (*specs.Process, error) {
	env, err := p.environment(c)
	if err != nil {
		return nil, err
	}
	command := c.Command
	if len(command) == 0 {
		command = p.image.Entrypoint
	}
	score, err := OOMScoreAdj(p.object.Spec.PriorityClassName)
	if err != nil {
		return nil, err
	}
	granted, err := capabilities(c)
	if err != nil {
		return nil, err
	}
	process := &specs.Process{
		Cwd:             "/",
		Args:            expand(slices.Concat(command, c.Args), env),
		Env:             slices.Concat(p.image.Env, env),
		User:            user(p.object, c),
		NoNewPrivileges: !ptr.Deref(security(c).AllowPrivilegeEscalation, true),
		OOMScoreAdj:     &score,
		// Not ambient nor inheritable: of other users than root, only programs whose files
		// permit it get them.
		Capabilities: &specs.LinuxCapabilities{Bounding: granted, Effective: granted, Permitted: granted},
	}
	return process, nil
}

// environment is that of the Pod alone, without the image's.
func (p *Pod) environment(c *corev1.Container) ([]string, error) {
	var env []string
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			var err error
			if value, err = p.field(e.ValueFrom.FieldRef); err != nil {
				return nil, fmt.Errorf("variable %s: %w", e.Name, err)
			}
		}
		env = append(env, e.Name+"="+value)
	}
	return env, nil
}

// field is the value of one of the Pod's fields.
func (p *Pod) field(ref *corev1.ObjectFieldSelector) (string, error) {
	if ref == nil {
		return "", errors.New("it is not a field of the Pod")
	}
	switch ref.FieldPath {
	case "spec.nodeName":
		return p.object.Spec.NodeName, nil
	case "metadata.namespace":
		return p.object.Namespace, nil
	}
	if key, ok := strings.CutPrefix(ref.FieldPath, "metadata.annotations['"); ok {
		return p.object.Annotations[strings.TrimSuffix(key, "']")], nil
	}
	return "", fmt.Errorf("field %s is not known here", ref.FieldPath)
}

// expand puts values in the place of $(NAME).
func expand(command, env []string) []string {
	var pairs []string
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		pairs = append(pairs, "$("+name+")", value)
	}
	replacer := strings.NewReplacer(pairs...)
	var out []string
	for _, word := range command {
		out = append(out, replacer.Replace(word))
	}
	return out
}

// mounts returns what every container has, and the pod's volumes.
func (p *Pod) mounts(c *corev1.Container) ([]specs.Mount, error) {
	mounts := kernelMounts(privileged(c))
	for _, m := range c.VolumeMounts {
		if m.SubPath != "" || m.SubPathExpr != "" || m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
			return nil, fmt.Errorf("volume %s is mounted in a way that is not known here", m.Name)
		}
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		mounts = append(mounts, specs.Mount{Destination: m.MountPath, Type: "bind", Source: p.mountSource(m.Name),
			Options: []string{"rbind", "rprivate", access}})
	}
	return mounts, nil
}

// kernelMounts returns what runtimes mount in every container.
func kernelMounts(privileged bool) []specs.Mount {
	sys := []string{"nosuid", "noexec", "nodev", "ro"}
	if privileged {
		sys[3] = "rw"
	}
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: sys},
	}
}

// What runtimes hide from containers that are not privileged, and what those
// cannot write.
var (
	maskedPaths = []string{"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware"}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)
