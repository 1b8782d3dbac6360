//go:build linux

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
)

// Boot runs programs on a kernel, one after the other, and copies what guest and programs
// print to output. The error says that the guest came to no end by itself, or that a
// program failed.
func Boot(ctx context.Context, k Kernel, a Accelerator, output io.Writer, programs ...Program) error {
	image, errImage := scratchFile()
	result, errResult := scratchFile()
	if err := errors.Join(errImage, errResult); err != nil {
		return err
	}
	defer image.Close()
	defer result.Close()
	if err := writeImage(ctx, image, k, programs); err != nil {
		return fmt.Errorf("make the initramfs: %w", err)
	}
	var problems bytes.Buffer
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", slices.Concat(hardware, a.arguments(), []string{
		"-kernel", k.Image, "-initrd", "/proc/self/fd/3", "-append", kernelParameters + a.parameters(),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console", "-serial", "file:/proc/self/fd/4",
	})...)
	cmd.ExtraFiles = []*os.File{image, result} // descriptors 3 and 4
	cmd.Stdout, cmd.Stderr = withoutReturns{output}, &problems
	if err := runBound(cmd); err != nil || ctx.Err() != nil {
		return fmt.Errorf("guest with kernel %s: %w\n%s", k.Release, errors.Join(context.Cause(ctx), err), problems.String())
	}
	return readResult(result)
}

// scratchFile makes a file without a name, of which nothing is left however this
// process ends.
func scratchFile() (*os.File, error) {
	f, err := os.CreateTemp("", "sluice-vm-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// kernelParameters stop a guest that does anything wrong: with panic=-1 it wants
// to reboot, and qemu ends instead. It is not exposed to attacks, so that it does without
// costly mitigations.
const kernelParameters = "console=ttyS0 quiet loglevel=5 panic=-1 oops=panic panic_on_warn=1 " +
	"mitigations=off random.trust_cpu=on"

// hardware is one processor, and no devices but the serial lines.
var hardware = []string{
	"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none",
	"-machine", "pc", "-smp", "1", "-m", "1024",
}

// runBound runs a command that dies with this process, however that ends.
func runBound(cmd *exec.Cmd) error {
	// The signal comes when the thread that started the command ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

// readResult reads what the guest's init said about the binary.
func readResult(f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	var code int
	if _, err := fmt.Fscanf(bytes.NewReader(text), "exit %d", &code); err != nil {
		return fmt.Errorf("the guest ended before its program did (it says %q)", text)
	}
	if code != 0 {
		return fmt.Errorf("a program ended with exit code %d", code)
	}
	return nil
}

// withoutReturns undoes what a terminal does to the ends of lines.
type withoutReturns struct{ io.Writer }

func (w withoutReturns) Write(p []byte) (int, error) {
	if _, err := w.Writer.Write(bytes.ReplaceAll(p, []byte("\r"), nil)); err != nil {
		return 0, err
	}
	return len(p), nil
}
