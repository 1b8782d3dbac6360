package kubelet

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
)

// defaultProfile is the system calls that runtimes allow by default, as Debian's
// package golang-github-containers-common has them.
const defaultProfile = "/usr/share/containers/seccomp.json"

// profile is a list of system calls with conditions, from which that of a
// container is made.
type profile struct {
	DefaultAction   specs.LinuxSeccompAction `json:"defaultAction"`
	DefaultErrnoRet *uint                    `json:"defaultErrnoRet"`
	Syscalls        []struct {
		specs.LinuxSyscall
		Includes condition `json:"includes"`
		Excludes condition `json:"excludes"`
	} `json:"syscalls"`
}

// condition is about the machine and the container's capabilities.
type condition struct {
	Arches []string `json:"arches"`
	Caps   []string `json:"caps"`
}

// admits reports whether a rule with these includes is for a container.
func (c condition) admits(capabilities []string) bool {
	if len(c.Arches) > 0 && !slices.Contains(c.Arches, runtime.GOARCH) {
		return false
	}
	return !slices.ContainsFunc(c.Caps, func(name string) bool { return !slices.Contains(capabilities, name) })
}

// rejects reports whether a rule with these excludes is not for a container.
func (c condition) rejects(capabilities []string) bool {
	return slices.Contains(c.Arches, runtime.GOARCH) ||
		slices.ContainsFunc(c.Caps, func(name string) bool { return slices.Contains(capabilities, name) })
}

// seccomp is which system calls a container may make; nil if all.
func (p *Pod) seccomp(c *corev1.Container, capabilities []string) (*specs.LinuxSeccomp, error) {
	wanted := security(c).SeccompProfile
	if wanted == nil && p.object.Spec.SecurityContext != nil {
		wanted = p.object.Spec.SecurityContext.SeccompProfile
	}
	if wanted == nil || wanted.Type == corev1.SeccompProfileTypeUnconfined {
		return nil, nil
	}
	if wanted.Type != corev1.SeccompProfileTypeRuntimeDefault {
		return nil, fmt.Errorf("seccomp profile %s is not known here", wanted.Type)
	}
	text, err := os.ReadFile(defaultProfile)
	if err != nil {
		return nil, err
	}
	var all profile
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", defaultProfile, err)
	}
	// No architectures: the runtime then uses the machine's own.
	filter := &specs.LinuxSeccomp{DefaultAction: all.DefaultAction, DefaultErrnoRet: all.DefaultErrnoRet}
	for _, rule := range all.Syscalls {
		if rule.Includes.admits(capabilities) && !rule.Excludes.rejects(capabilities) {
			filter.Syscalls = append(filter.Syscalls, rule.LinuxSyscall)
		}
	}
	return filter, nil
}
