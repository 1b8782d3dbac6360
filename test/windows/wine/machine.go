package wine

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/testkit"
)

// Machine is a Windows machine. All sockets of a prefix are in the namespace of the first program that ran
// in it.
type Machine struct {
	*testing.T
	ns  *netnstest.Namespace
	dir string
	env []string
}

// NodeIPs are the addresses of a machine.
var NodeIPs = []string{"192.0.2.10", "2001:db8::10"}

// New returns a machine, which exists until the test ends.
func New(t *testing.T) *Machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice-wine-")
	if err != nil {
		t.Fatal(err)
	}
	prefix := filepath.Join(dir, "prefix")
	m := &Machine{T: t, ns: netnstest.New(t), dir: dir, env: append(os.Environ(),
		"WINEPREFIX="+prefix, "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree,mshtml=;winemenubuilder.exe=d")}
	t.Cleanup(func() {
		m.stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for _, args := range []string{"link set lo up", "link add eth0 type veth peer name peer0", "address add " + NodeIPs[0] + "/24 dev eth0",
		"address add " + NodeIPs[1] + "/64 dev eth0 nodad", "link set eth0 up", "link set peer0 up"} {
		m.ns.Run(t, "", "ip", strings.Fields(args)...)
	}
	testkit.Progress("making a prefix of wine")
	m.Run("wineboot", "-i")
	m.Run("wineserver", "-w")
	system := filepath.Join(prefix, "drive_c/windows/system32")
	m.compile("bcryptprimitives.c", filepath.Join(system, "bcryptprimitives.dll"), "-ladvapi32")
	m.compile("hns.c", filepath.Join(system, "computenetwork.dll"), "-lws2_32", "-lole32")
	if err := os.Link(filepath.Join(system, "computenetwork.dll"), filepath.Join(system, "vmcompute.dll")); err != nil {
		t.Fatal(err)
	}
	return m
}

// stop ends all that runs on the machine, and nothing else.
func (m *Machine) stop() {
	_ = m.command("wineserver", "-k").Run() // it says so if nothing runs
	_ = m.command("wineserver", "-w").Run()
}

//go:embed dll
var sources embed.FS

func (m *Machine) compile(source, to string, libraries ...string) {
	m.Helper()
	text, err := sources.ReadFile("dll/" + source)
	if err == nil {
		err = os.WriteFile(m.Path(source), text, 0o644)
	}
	if err != nil {
		m.Fatal(err)
	}
	args := append([]string{"-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-s", "-o", to, m.Path(source)}, libraries...)
	if out, err := exec.Command("x86_64-w64-mingw32-gcc", args...).CombinedOutput(); err != nil {
		m.Fatalf("compile %s: %v\n%s", source, err, out)
	}
}

// For returns the machine for a part of the test.
func (m *Machine) For(t *testing.T) *Machine {
	part := *m
	part.T = t
	return &part
}

// Path returns the path of a file that goes with the machine.
func (m *Machine) Path(name string) string { return filepath.Join(m.dir, name) }

// Native returns a path as programs of Windows write it.
func Native(path string) string { return "Z:" + strings.ReplaceAll(path, "/", `\`) }

// Build builds a package of this module for Windows, or its tests, and returns the path of the program.
func (m *Machine) Build(name string, arguments ...string) string {
	m.Helper()
	testkit.Progress("building " + name)
	out := m.Path(name)
	build := exec.Command("go", append(arguments[:1:1], append([]string{"-o", out}, arguments[1:]...)...)...)
	build.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		m.Fatalf("build %s: %v\n%s", name, err, text)
	}
	return out
}

// BinaryVariable names the environment variable with the path of the kube-proxy.exe under test.
const BinaryVariable = "SLUICE_WINDOWS_BINARY"

// KubeProxy returns the path of our kube-proxy.exe: the one that BinaryVariable names, or one that is built.
func (m *Machine) KubeProxy() string {
	m.Helper()
	if path := os.Getenv(BinaryVariable); path != "" {
		return path
	}
	return m.Build("kube-proxy.exe", "build", "-ldflags=-s -w", "sluice/cmd/kube-proxy")
}

func (m *Machine) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = m.env
	return cmd
}

// Start starts a command of this machine or, as arguments of wine, a program of Windows. What it prints goes
// to a file: wine leaves programs behind that keep a pipe open.
func (m *Machine) Start(log string, env []string, name string, args ...string) *exec.Cmd {
	m.Helper()
	out, err := os.Create(m.Path(log))
	if err != nil {
		m.Fatal(err)
	}
	defer out.Close()
	cmd := m.command(name, args...)
	cmd.Env = slices.Concat(m.env, env) // programs start at the same time
	cmd.Stdout, cmd.Stderr = out, out
	if err := m.ns.Do(cmd.Start); err != nil {
		m.Fatal(err)
	}
	return cmd
}

// Run runs a command to its end and returns what it prints. The test fails if it does.
func (m *Machine) Run(name string, args ...string) string {
	m.Helper()
	out, err := m.Try(nil, name, args...)
	if err != nil {
		m.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

var outputs atomic.Int32

// Try runs a command to its end and returns what it prints.
func (m *Machine) Try(env []string, name string, args ...string) (string, error) {
	m.Helper()
	log := fmt.Sprintf("output-%d", outputs.Add(1))
	cmd := m.Start(log, env, name, args...)
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Scaled(2*time.Minute))
	defer cancel()
	end := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !end() {
		err = fmt.Errorf("it does not end: %w", err)
	}
	return m.Read(log), err
}

// Read returns the contents of a file that goes with the machine.
func (m *Machine) Read(name string) string {
	m.Helper()
	text, err := os.ReadFile(m.Path(name))
	if err != nil {
		m.Fatal(err)
	}
	return string(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")))
}

// Listen listens on an address of the machine, such as 127.0.0.1:0, until the test ends.
func (m *Machine) Listen(address string) net.Listener {
	m.Helper()
	var listener net.Listener
	err := m.Do(func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { listener.Close() })
	return listener
}

// Do calls f in the network of the machine.
func (m *Machine) Do(f func() error) error { return m.ns.Do(f) }

// FreeAddress returns an address of the loopback with a port that nobody listens on.
func (m *Machine) FreeAddress() string {
	l := m.Listen("127.0.0.1:0")
	defer l.Close()
	return l.Addr().String()
}

// Get asks a server of the machine, and returns the status of its answer, 0 if there is none, and the answer.
func (m *Machine) Get(address, path string) (status int, body string) {
	client := &http.Client{Timeout: testkit.Scaled(5 * time.Second), Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, to string) (conn net.Conn, err error) {
			err = m.Do(func() (err error) {
				conn, err = new(net.Dialer).DialContext(ctx, network, to)
				return err
			})
			return conn, err
		}}}
	response, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, ""
	}
	return response.StatusCode, string(text)
}
