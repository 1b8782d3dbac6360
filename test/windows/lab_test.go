//go:build linux

package windows

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/kernel/netns/netnstest"
	"sluice/internal/testkit"
)

// lab is a Windows machine: a prefix of wine, in a network namespace with the addresses of a node. All
// sockets of a prefix are in the namespace of the first program that ran in it.
type lab struct {
	*testing.T
	ns       *netnstest.Namespace
	dir, exe string
	env      []string
}

// binaryVariable names the environment variable with the path of the program under test.
const binaryVariable = "SLUICE_WINDOWS_BINARY"

func newLab(t *testing.T) *lab {
	testkit.NotShort(t, "it starts wine")
	dir, err := os.MkdirTemp("", "sluice-windows-")
	if err != nil {
		t.Fatal(err)
	}
	prefix := filepath.Join(dir, "prefix")
	l := &lab{T: t, ns: netnstest.New(t), dir: dir, exe: os.Getenv(binaryVariable), env: append(os.Environ(),
		"WINEPREFIX="+prefix, "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree,mshtml=;winemenubuilder.exe=d")}
	t.Cleanup(func() {
		_ = l.command("wineserver", "-k").Run() // all that still runs in the prefix
		_ = l.command("wineserver", "-w").Run()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for _, args := range []string{"link set lo up", "link add eth0 type veth peer name peer0", "address add 192.0.2.10/24 dev eth0",
		"address add 2001:db8::10/64 dev eth0 nodad", "link set eth0 up", "link set peer0 up"} {
		l.ns.Run(t, "", "ip", strings.Fields(args)...)
	}
	if l.exe == "" {
		testkit.Progress("building kube-proxy.exe")
		l.exe = l.path("kube-proxy.exe")
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", l.exe, "sluice/cmd/kube-proxy")
		build.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build kube-proxy.exe: %v\n%s", err, out)
		}
	}
	compile := func(source string, flags ...string) string {
		t.Helper()
		out := l.path(source + ".dll")
		args := append([]string{"-O2", "-Wall", "-Wextra", "-shared", "-s", "-o", out, filepath.Join("dll", source+".c")}, flags...)
		if text, err := exec.Command("x86_64-w64-mingw32-gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("compile %s: %v\n%s", source, err, text)
		}
		return out
	}
	runtime := compile("bcryptprimitives", "-nostdlib", "-Wl,-e,DllMain", "-ladvapi32", "-lws2_32", "-lkernel32", "-lntdll")
	service := compile("hns", "-lws2_32", "-lole32")
	testkit.Progress("making a prefix of wine")
	l.run("wineboot", "-i")
	l.run("wineserver", "-w")
	for name, from := range map[string]string{"bcryptprimitives": runtime, "computenetwork": service, "vmcompute": service} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(prefix, "drive_c/windows/system32", name+".dll"), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

// native returns a path as programs of Windows write it.
func native(path string) string { return "Z:" + strings.ReplaceAll(path, "/", `\`) }

func (l *lab) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = l.env
	return cmd
}

// start starts a command in the namespace. What it prints goes to a file: wine leaves programs behind
// that keep a pipe open.
func (l *lab) start(log string, env []string, name string, args ...string) *exec.Cmd {
	l.Helper()
	out, err := os.Create(l.path(log))
	if err != nil {
		l.Fatal(err)
	}
	defer out.Close()
	cmd := l.command(name, args...)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := l.ns.Do(cmd.Start); err != nil {
		l.Fatal(err)
	}
	return cmd
}

// run runs a command to its end and returns what it prints. The test fails if it does.
func (l *lab) run(name string, args ...string) string {
	l.Helper()
	return l.runWith(nil, name, args...)
}

func (l *lab) runWith(env []string, name string, args ...string) string {
	l.Helper()
	cmd := l.start("output", env, name, args...)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var err error
	select {
	case err = <-done:
	case <-time.After(testkit.Scaled(2 * time.Minute)):
		_ = cmd.Process.Kill()
		err = fmt.Errorf("it does not end: %w", <-done)
	}
	out := l.read("output")
	if err != nil {
		l.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (l *lab) read(name string) string {
	l.Helper()
	text, err := os.ReadFile(l.path(name))
	if err != nil {
		l.Fatal(err)
	}
	return string(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")))
}

// listen listens in the namespace, on a free port of the loopback.
func (l *lab) listen() net.Listener {
	l.Helper()
	var listener net.Listener
	err := l.ns.Do(func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { listener.Close() })
	return listener
}

func listenAt(address string) (net.Listener, error) { return net.Listen("tcp", address) }
