package apiserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// CacheVariable names the environment variable with the directory for binaries.
// Without it, that is sluice-cluster in the user's cache directory.
const CacheVariable = "SLUICE_CLUSTER_CACHE"

// KubernetesVariable names the environment variable with the release of Kubernetes whose
// API server is run, such as 1.31, for which there must be a file kubernetes-1.31.mod
// beside this one. Without it, that is the release in go.mod.
const KubernetesVariable = "SLUICE_KUBERNETES"

// Binaries are the paths of the binaries that a Server runs, of upstream's
// kube-proxy, and of the one of this module that prints what that knows.
type Binaries struct {
	Etcd, APIServer, KubeProxy, Upstream string
}

// component is a binary built from a module.
type component struct {
	name    string
	module  string
	pkg     string
	version string // linker symbol for the module's version, if it has one
	// own is a binary of this module, which may change while the version does not. It imports
	// nothing else of it.
	own bool
	// system is the one that it is built for, this one if empty.
	system string
	// modfile is used in place of go.mod, if not empty.
	modfile string
}

var (
	etcd      = component{name: "etcd", module: "go.etcd.io/etcd/server/v3", pkg: "go.etcd.io/etcd/server/v3"}
	apiServer = ofKubernetes("kube-apiserver")
	kubeProxy = ofKubernetes("kube-proxy")
	upstream  = component{name: "upstream", module: "k8s.io/kubernetes", pkg: "sluice/test/cluster/upstream",
		version: "k8s.io/component-base/version.gitVersion", own: true}
)

// ofKubernetes returns a component of Kubernetes.
func ofKubernetes(name string) component {
	return component{name: name, module: "k8s.io/kubernetes", pkg: "k8s.io/kubernetes/cmd/" + name,
		version: "k8s.io/component-base/version.gitVersion"}
}

// forWindows returns the component as a program of Windows.
func (c component) forWindows() component {
	c.name += ".exe"
	c.system = "windows"
	return c
}

// Build returns the binaries, after building those missing in the cache, which
// takes minutes. It must be called from within this module. Progress is reported by
// report.
func Build(ctx context.Context, report func(string)) (Binaries, error) {
	dir, err := cacheDir()
	if err != nil {
		return Binaries{}, err
	}
	api := apiServer
	if release := os.Getenv(KubernetesVariable); release != "" {
		if api.modfile, err = modfileOf(ctx, release); err != nil {
			return Binaries{}, err
		}
	}
	var b Binaries
	for c, path := range map[component]*string{etcd: &b.Etcd, api: &b.APIServer, kubeProxy: &b.KubeProxy, upstream: &b.Upstream} {
		if *path, err = c.cached(ctx, dir, report); err != nil {
			return Binaries{}, fmt.Errorf("build %s: %w", c.name, err)
		}
	}
	return b, nil
}

// BuildForWindows returns upstream's kube-proxy.exe, which is not among the Binaries because little needs it. It
// is built as they are.
func BuildForWindows(ctx context.Context, report func(string)) (path string, err error) {
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	c := kubeProxy.forWindows()
	if path, err = c.cached(ctx, dir, report); err != nil {
		return "", fmt.Errorf("build %s: %w", c.name, err)
	}
	return path, nil
}

// modfileOf returns the file that selects a release of Kubernetes.
func modfileOf(ctx context.Context, release string) (string, error) {
	own, err := runGo(ctx, nil, "env", "GOMOD")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(filepath.Dir(own), "apiserver")
	path := filepath.Join(dir, "kubernetes-"+release+".mod")
	if exists(path) {
		return path, nil
	}
	known, err := filepath.Glob(filepath.Join(dir, "kubernetes-*.mod"))
	return "", errors.Join(fmt.Errorf("%s=%s: there is no %s, only %v", KubernetesVariable, release, path, known), err)
}

func cacheDir() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "sluice-cluster"), err
}

// cached returns the path of the component in the cache, to which at most one
// process at a time writes.
func (c component) cached(ctx context.Context, cache string, report func(string)) (string, error) {
	version, err := c.runGo(ctx, "list", "-m", "-f", "{{.Version}}", c.module)
	if err != nil {
		return "", err
	}
	build := version + "-" + runtime.Version()
	if c.own {
		digest, err := c.sources(ctx)
		if err != nil {
			return "", err
		}
		build += "-" + digest
	}
	dir := filepath.Join(cache, c.name, build)
	path := filepath.Join(dir, c.name)
	if exists(path) {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(path) { // built by another process while this process waited
		return path, nil
	}
	report(fmt.Sprintf("Building %s %s into %s, once", c.name, version, dir))
	return path, c.build(ctx, version, path)
}

// sources returns a digest of what a binary of this module is built from. To ask the go command
// whether it is up to date would have it compile all of Kubernetes if its cache is empty.
func (c component) sources(ctx context.Context) (string, error) {
	dir, err := c.runGo(ctx, "list", "-tags", c.name, "-f", "{{.Dir}}", c.pkg)
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	module := filepath.Dir(dir)
	sum := sha256.New()
	for _, file := range append(files, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")) {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(file), len(text), text)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// build creates the binary at the path atomically.
func (c component) build(ctx context.Context, version, path string) error {
	unfinished := path + ".new"
	defer os.Remove(unfinished)
	flags := "-s -w"
	if c.version != "" {
		flags += fmt.Sprintf(" -X %s=%s", c.version, version)
	}
	args := []string{"-p", "2", "-buildvcs=false", "-ldflags", flags, "-o", unfinished}
	if c.own {
		args = append(args, "-tags", c.name)
	}
	if _, err := c.runGo(ctx, "build", append(args, c.pkg)...); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

// runGo runs the go command with the module of the component.
func (c component) runGo(ctx context.Context, command string, args ...string) (string, error) {
	if c.modfile != "" {
		args = append([]string{"-modfile=" + c.modfile}, args...)
	}
	env := []string{"CGO_ENABLED=0"}
	if c.system != "" {
		env = append(env, "GOOS="+c.system)
	}
	return runGo(ctx, env, append([]string{command}, args...)...)
}

// runGo runs the go command and returns what it printed.
func runGo(ctx context.Context, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	output, err := cmd.Output()
	if failure := (*exec.ExitError)(nil); errors.As(err, &failure) {
		err = fmt.Errorf("%w\n%s", err, failure.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(output)), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lock waits for a lock that the kernel releases when the process ends.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}
