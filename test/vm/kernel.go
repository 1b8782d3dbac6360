//go:build linux

package vm

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// KernelsVariable names the environment variable with the packages of the
// kernels to test on. PACKAGE/RELEASE is one of another release of Debian, such as
// linux-image-cloud-amd64/trixie-backports.
const KernelsVariable = "SLUICE_VM_KERNELS"

// DefaultKernels are packages that stand for the newest build of a kernel: that
// of the machine's release of Debian, and the long-term kernel that Debian
// offers next to it. The cloud flavour is small and knows all of the network.
var DefaultKernels = []string{"linux-image-cloud-amd64", "linux-image-6.12-cloud-amd64"}

// moduleDirs are the parts of the kernel's tree of modules that guests get,
// whole: which modules belong together differs between kernels.
var moduleDirs = []string{
	"arch/x86/crypto", "crypto", "lib",
	"net/802", "net/bridge", "net/core", "net/ipv4", "net/ipv6", "net/key", "net/llc",
	"net/netfilter", "net/sched", "net/sctp", "net/xfrm",
	"drivers/net/dummy.ko", "drivers/net/veth.ko",
}

// Kernel is a kernel to boot.
type Kernel struct {
	Release string // as uname -r says
	Image   string // path of the kernel
	modules string // directory with what belongs into /lib/modules/Release
	busybox string // path of a static busybox
	// programs is the directory with the binaries of the release of Debian that the
	// kernel is of; empty if that is the machine's.
	programs string
}

// Kernels gets the kernels to test on. Of DefaultKernels it takes those that
// the apt sources offer, and reports the others to logf; those that
// KernelsVariable names must be there.
func Kernels(ctx context.Context, c Cache, logf func(string, ...any)) ([]Kernel, error) {
	names, optional := DefaultKernels, true
	if wanted := os.Getenv(KernelsVariable); wanted != "" {
		names, optional = strings.Split(wanted, ","), false
	}
	kernels, missing, err := c.kernels(ctx, names)
	if err != nil || missing != nil {
		logf("trying again with fresh lists of packages: not offered: %q, error: %v", missing, err)
		errRefresh := c.refresh(ctx, names)
		if kernels, missing, err = c.kernels(ctx, names); err != nil {
			return nil, errors.Join(err, errRefresh)
		}
	}
	if missing != nil && (!optional || len(kernels) == 0) {
		return nil, fmt.Errorf("%w: %q", errNotOffered, missing)
	}
	if missing != nil {
		logf("not tested, since %v: %q", errNotOffered, missing)
	}
	return kernels, nil
}

// kernels gets kernels and returns which ones the apt sources do not offer.
func (c Cache) kernels(ctx context.Context, names []string) (kernels []Kernel, missing []string, err error) {
	busybox, err := c.busybox(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		k, err := c.kernel(ctx, name)
		switch {
		case errors.Is(err, errNotOffered):
			missing = append(missing, name)
		case err != nil:
			return nil, nil, err
		default:
			k.busybox = busybox
			if !strings.HasPrefix(k.Release, debian12Kernel) {
				if k.programs, err = c.debian13Dir(ctx); err != nil {
					return nil, nil, err
				}
			}
			kernels = append(kernels, k)
		}
	}
	return kernels, missing, nil
}

func (c Cache) busybox(ctx context.Context) (string, error) {
	p, err := c.machine().lookup(ctx, "busybox-static")
	if err != nil {
		return "", err
	}
	dir, err := c.entry(p.fileName(), func(dir string) error { return p.unpack(ctx, dir) })
	if err != nil {
		return "", err
	}
	return findFile(dir, "busybox")
}

// kernel gets a kernel by the name of its package, or of one that depends on it.
func (c Cache) kernel(ctx context.Context, name string) (Kernel, error) {
	source := c.machine()
	name, release, other := strings.Cut(name, "/")
	if other {
		var err error
		if source, err = c.release(ctx, release); err != nil {
			return Kernel{}, err
		}
	}
	p, err := source.lookup(ctx, name)
	if err != nil {
		return Kernel{}, err
	}
	const prefix = "linux-image-"
	if image, ok := p.dependency(prefix); ok {
		if p, err = source.lookup(ctx, image); err != nil {
			return Kernel{}, err
		}
	}
	release = strings.TrimSuffix(strings.TrimPrefix(p.name, prefix), "-unsigned")
	choice := fnv.New32()
	fmt.Fprint(choice, moduleDirs)
	entry := fmt.Sprintf("%s-%08x", p.fileName(), choice.Sum32())
	dir, err := c.entry(entry, func(dir string) error { return prepareKernel(ctx, c, p, release, dir) })
	if err != nil {
		return Kernel{}, fmt.Errorf("get kernel %s: %w", release, err)
	}
	return Kernel{Release: release, Image: filepath.Join(dir, "vmlinuz"), modules: filepath.Join(dir, "lib/modules", release)}, nil
}

// prepareKernel fills dir with a kernel and those of its modules that guests get.
func prepareKernel(ctx context.Context, c Cache, p debianPackage, release, dir string) error {
	tree := filepath.Join(dir, "package")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	packages := []debianPackage{p}
	for _, part := range []string{"linux-base-", "linux-binary-", "linux-modules-"} { // newer kernels are split
		if name, ok := p.dependency(part); ok {
			p, err := p.from.lookup(ctx, name)
			if err != nil {
				return err
			}
			packages = append(packages, p)
		}
	}
	for _, p := range packages {
		if err := p.unpack(ctx, tree); err != nil {
			return err
		}
	}
	image, err := findFile(tree, "vmlinuz-"+release)
	if err != nil {
		image, err = findFile(tree, "vmlinuz") // in packages of split kernels
	}
	if err != nil {
		return err
	}
	if err := os.Rename(image, filepath.Join(dir, "vmlinuz")); err != nil {
		return err
	}
	list, err := findFile(tree, "modules.builtin")
	if err != nil {
		return err
	}
	modules := filepath.Join(dir, "lib/modules", release)
	if err := moveModules(ctx, filepath.Dir(list), modules); err != nil {
		return err
	}
	busybox, err := c.busybox(ctx)
	if err != nil {
		return err
	}
	// The package leaves the list of what depends on what to its installation.
	_, err = run(ctx, "", busybox, "depmod", "-b", dir, release)
	return err
}

// moveModules takes moduleDirs out of a kernel's tree. Compressed modules
// are unpacked: emulated processors are slow at that.
func moveModules(ctx context.Context, from, to string) error {
	for _, dir := range moduleDirs {
		found, err := filepath.Glob(filepath.Join(from, "kernel", dir) + "*")
		if err != nil {
			return err
		}
		for _, source := range found {
			target := filepath.Join(to, "kernel", filepath.Dir(dir), filepath.Base(source))
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				return err
			}
			if err := os.Rename(source, target); err != nil {
				return err
			}
		}
	}
	for _, list := range []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"} {
		if err := os.Rename(filepath.Join(from, list), filepath.Join(to, list)); err != nil {
			return err
		}
	}
	return filepath.WalkDir(to, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".xz":
			_, err = run(ctx, "", "xz", "--decompress", path)
		case ".zst":
			_, err = run(ctx, "", "zstd", "--quiet", "--decompress", "--rm", path)
		}
		return err
	})
}

// findFile finds the file of that name somewhere in a directory: releases of Debian
// differ in where they put it.
func findFile(dir, name string) (string, error) {
	found := ""
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() == name {
			found = path
			return fs.SkipAll
		}
		return err
	})
	if err == nil && found == "" {
		err = fmt.Errorf("no file %s in %s", name, dir)
	}
	return found, err
}
