//go:build linux

package vm

import (
	"context"
	"io"
	"os"
	"time"
)

// Accelerator is how qemu runs the guest's instructions.
type Accelerator string

const (
	// KVM runs them on the machine's processor.
	KVM Accelerator = "kvm"
	// TCG translates them, which works everywhere and takes ten times as long.
	TCG Accelerator = "tcg"
)

// arguments returns qemu's arguments. Emulated guests live in a time of their own,
// a nanosecond for each instruction, which jumps ahead when they have nothing to
// do: nothing waits for their pauses, and however busy this machine is, they do
// not notice. What times out there would do so on a machine without any load.
// The plainest processor is the fastest to emulate.
func (a Accelerator) arguments() []string {
	if a == KVM {
		return []string{"-accel", "kvm", "-cpu", "host"}
	}
	return []string{"-accel", "tcg", "-cpu", "qemu64,+rdrand", "-icount", "shift=0,sleep=off"}
}

// parameters returns those of the kernel. An emulated one would spend half of its boot
// on calibrating timers and on testing ciphers, and then clear all memory twice.
func (a Accelerator) parameters() string {
	if a == KVM {
		return ""
	}
	return " nolapic_timer no_timer_check cryptomgr.notests init_on_alloc=0"
}

// probeTime is enough for a guest with KVM to come and go.
const probeTime = 10 * time.Second

// ChooseAccelerator tries whether KVM works: where machines are virtual
// themselves, /dev/kvm may be there and guests hang all the same.
func ChooseAccelerator(ctx context.Context, k Kernel) Accelerator {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return TCG
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if Boot(ctx, k, KVM, io.Discard, Program{Args: []string{k.busybox, "true"}}) == nil {
		return KVM
	}
	return TCG
}
