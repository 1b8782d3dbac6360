package kubelet

import (
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

func security(c *corev1.Container) *corev1.SecurityContext {
	if c.SecurityContext == nil {
		return &corev1.SecurityContext{}
	}
	return c.SecurityContext
}

func privileged(c *corev1.Container) bool { return ptr.Deref(security(c).Privileged, false) }

// user returns the user of the container. The image names no user, which means
// root.
func user(pod *corev1.Pod, c *corev1.Container) specs.User {
	all := pod.Spec.SecurityContext
	if all == nil {
		all = &corev1.PodSecurityContext{}
	}
	first := func(ids ...*int64) uint32 {
		for _, id := range ids {
			if id != nil {
				return uint32(*id)
			}
		}
		return 0
	}
	return specs.User{
		UID: first(security(c).RunAsUser, all.RunAsUser),
		GID: first(security(c).RunAsGroup, all.RunAsGroup),
	}
}

// defaultCapabilities are those of containers by default.
var defaultCapabilities = []string{"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
	"NET_BIND_SERVICE", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}

// capabilities are those of a container, by their names in the kernel.
func capabilities(c *corev1.Container) ([]string, error) {
	if privileged(c) {
		return ownCapabilities()
	}
	granted := slices.Clone(defaultCapabilities)
	if asked := security(c).Capabilities; asked != nil {
		for _, name := range asked.Drop {
			granted = slices.DeleteFunc(granted, func(have string) bool { return name == "ALL" || string(name) == have })
		}
		for _, name := range asked.Add {
			granted = append(granted, string(name))
		}
	}
	for i, name := range granted {
		granted[i] = "CAP_" + name
	}
	return granted, nil
}

// ownCapabilities returns those that this process can pass on.
func ownCapabilities() ([]string, error) {
	set, err := boundingSet()
	if err != nil {
		return nil, err
	}
	var names []string
	for ; set != 0; set &= set - 1 {
		number := bits.TrailingZeros64(set)
		if number >= len(capabilityNames) {
			break // newer than this list
		}
		names = append(names, "CAP_"+capabilityNames[number])
	}
	return names, nil
}

func boundingSet() (uint64, error) {
	const field = "CapBnd:"
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if digits, ok := strings.CutPrefix(line, field); ok {
			return strconv.ParseUint(strings.TrimSpace(digits), 16, 64)
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no field %s", field)
}

// capabilityNames are in the order of their numbers.
var capabilityNames = []string{"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
	"SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
	"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
	"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE"}

// OOMScoreAdj is the score that the kubelet gives the processes of pods of a
// priority class. Where this process may not go that low, it is its own.
func OOMScoreAdj(class string) (int, error) {
	const nodeCritical, bestEffort = -997, 1000
	if class == "" { // of a pod that requests nothing
		return bestEffort, nil
	}
	if class != "system-node-critical" {
		return 0, fmt.Errorf("which score pods of class %q get is not known here", class)
	}
	set, err := boundingSet()
	if err != nil || set&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		return nodeCritical, err
	}
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(own)))
}
