package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// Pod is a pod on a machine, with its volumes and without a container at first.
type Pod struct {
	machine *Machine
	client  kubernetes.Interface
	object  *corev1.Pod
	image   *Image
}

// Options configures a pod.
type Options struct {
	Client kubernetes.Interface // what the volumes are filled from
	Pod    *corev1.Pod          // as the API server has it
	Image  *Image               // of all its containers
}

// Pod prepares a pod: it unpacks the image and mounts the volumes.
func (m *Machine) Pod(ctx context.Context, o Options) (*Pod, error) {
	p := &Pod{machine: m, client: o.Client, object: o.Pod, image: o.Image}
	if !o.Pod.Spec.HostNetwork {
		return nil, fmt.Errorf("pod %s has a network of its own, which is not supported here", o.Pod.Name)
	}
	if err := o.Image.unpack(m.path("image")); err != nil {
		return nil, err
	}
	if err := p.mountVolumes(ctx); err != nil {
		return nil, fmt.Errorf("pod %s: %w", o.Pod.Name, err)
	}
	return p, nil
}

// Container is a created container, running or not.
type Container struct {
	pod  *Pod
	id   string
	user specs.User
}

// Container recreates a container of the pod, as at its start or after its exit.
func (p *Pod) Container(of *corev1.Container) (*Container, error) {
	p.machine.started++
	c := &Container{p, fmt.Sprintf("%s-%d", of.Name, p.machine.started), user(p.object, of)}
	spec, err := p.spec(of)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", of.Name, err)
	}
	// It sees only the files of the image, not mount points created for another
	// container.
	if err := p.image.links(p.machine.path("image"), filepath.Join(c.bundle(), spec.Root.Path)); err != nil {
		return nil, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	return c, os.WriteFile(filepath.Join(c.bundle(), "config.json"), text, 0o600)
}

func (c *Container) bundle() string { return c.pod.machine.path("containers", c.id) }

// Command returns the command line that runs the container, to be run on the
// machine's host. It exits with the container, with the same exit code.
func (c *Container) Command() []string {
	m := c.pod.machine
	return m.Enter(m.runtime("run", "--bundle", c.bundle(), c.id)...)
}

// Exec runs a command in the container as its user, as kubectl exec does, and returns what
// it printed.
func (c *Container) Exec(ctx context.Context, command ...string) (string, error) {
	m := c.pod.machine
	as := fmt.Sprintf("--user=%d:%d", c.user.UID, c.user.GID)
	return m.run(ctx, m.runtime(append([]string{"exec", as, c.id}, command...)...)...)
}

// Signal sends a signal, such as TERM, to the first process of the container.
func (c *Container) Signal(ctx context.Context, name string) error {
	m := c.pod.machine
	_, err := m.run(ctx, m.runtime("kill", c.id, name)...)
	return err
}

// Process returns the fields of /proc/PID/status of the first process of the
// container.
func (c *Container) Process(ctx context.Context) (map[string]string, error) {
	m := c.pod.machine
	text, err := m.run(ctx, m.runtime("state", c.id)...)
	if err != nil {
		return nil, err
	}
	var state specs.State
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		return nil, fmt.Errorf("state of container %s: %w", c.id, err)
	}
	if text, err = m.run(ctx, "cat", fmt.Sprintf("/proc/%d/status", state.Pid)); err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields, nil
}
