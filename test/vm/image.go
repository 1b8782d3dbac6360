//go:build linux

package vm

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"sluice/internal/testkit"
)

var (
	//go:embed guest/init
	initScript string
	// protocols let nft print names of protocols, as it does elsewhere.
	//go:embed guest/protocols
	protocols string
)

// tools of this machine are in every guest, with the libraries they need. The shell is
// not that of busybox, which prefers its own ip to that of iproute2.
var tools = []string{"dash", "nft", "ip", "ss", "ipset", "ipvsadm", "conntrack", "xtables-nft-multi", "xtables-legacy-multi"}

// Program is run by a guest.
type Program struct {
	// Args are the path of a static binary on this machine and its arguments.
	// It runs in the guest's directory workDir.
	Args []string
	// Files are files and directories of this machine to put next to the program,
	// by name there. Programs in the same guest share them.
	Files map[string]string
	// Env are additions to the environment, as "NAME=value".
	Env []string
}

const (
	// workDir is the guest's directory with the program and its files.
	workDir = "/work"
	// programsDir is where init looks for binaries first.
	programsDir = "/usr/local/debian"
)

// writeImage writes an initramfs. It is not compressed, since unpacking takes an
// emulated processor longer than reading.
func writeImage(ctx context.Context, w io.Writer, k Kernel, programs []Program) error {
	files, err := filesOf(programs)
	if err != nil {
		return err
	}
	a := newArchive(w)
	for _, dir := range []string{"/dev", "/proc", "/sys", "/tmp", "/run", "/etc", "/var"} {
		a.dir(dir)
	}
	a.link("/var/run", "/run")
	a.device("/dev/console", 5, 1)
	a.text("/init", 0o755, initScript)
	a.text("/etc/protocols", 0o644, protocols)
	if err := addBusybox(ctx, a, k.busybox); err != nil {
		return err
	}
	a.copy(path.Join("/lib/modules", k.Release), k.modules)
	if err := addTools(ctx, a); err != nil {
		return err
	}
	if k.programs != "" {
		a.copy(programsDir, k.programs)
	}
	for name, from := range files {
		a.copy(path.Join(workDir, name), from)
	}
	a.text("/command", 0o755, script(programs))
	return a.close()
}

// filesOf returns what is put next to programs, by name. There is one of each for all.
func filesOf(programs []Program) (map[string]string, error) {
	files := map[string]string{}
	for _, p := range programs {
		files[path.Base(p.Args[0])] = p.Args[0]
		for name, from := range p.Files {
			if other, taken := files[name]; taken && other != from {
				return nil, fmt.Errorf("programs of one guest want both %s and %s as %s", other, from, name)
			}
			files[name] = from
		}
	}
	return files, nil
}

// addBusybox adds busybox under all its names. Tools come first in the path. The kernel
// calls /sbin/modprobe when it wants a module.
func addBusybox(ctx context.Context, a *archive, busybox string) error {
	a.copy("/bin/busybox", busybox)
	names, err := run(ctx, "", busybox, "--list")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(names) {
		if name != "busybox" && name != "sh" {
			a.link(path.Join("/bin", name), "/bin/busybox")
		}
	}
	a.link("/sbin/modprobe", "/bin/busybox")
	return nil
}

// addTools adds tools, the names and extensions of iptables, and the shared
// libraries that ldd finds for them.
func addTools(ctx context.Context, a *archive) error {
	files, err := filepath.Glob(path.Join(extensionsDir, "*.so"))
	if err != nil {
		return err
	}
	a.copy(extensionsDir, extensionsDir)
	a.link("/bin/sh", "/usr/sbin/dash")
	for _, tool := range tools {
		file, err := exec.LookPath(tool)
		if err != nil {
			return err
		}
		a.copy(path.Join("/usr/sbin", tool), file)
		files = append(files, file)
	}
	for name, file := range iptablesPrograms {
		a.link(path.Join("/usr/sbin", name), file)
	}
	list, err := run(ctx, "", append([]string{"ldd"}, files...)...)
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, library := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(list, -1) {
		needed[library[1]] = true
	}
	for library := range needed {
		a.copy(library, library)
	}
	return nil
}

// script returns a shell script that runs programs. Its exit code is that of the last one
// that failed.
func script(programs []Program) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cd %s\nexport %s=1\ncode=0\n", workDir, testkit.GuestVariable)
	for _, p := range programs {
		b.WriteString("(\n")
		for _, variable := range p.Env {
			fmt.Fprintf(&b, "export %s\n", quote(variable))
		}
		b.WriteString("exec " + quote("./"+path.Base(p.Args[0])))
		for _, arg := range p.Args[1:] {
			b.WriteString(" " + quote(arg))
		}
		b.WriteString("\n) || code=$?\n")
	}
	return b.String() + "exit $code\n"
}

// quote makes one word for a shell of any text.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
