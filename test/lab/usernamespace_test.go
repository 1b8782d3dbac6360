//go:build linux

package lab_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sluice/internal/answer/control"
	"sluice/internal/answer/listing"
	"sluice/internal/answer/question"
	"sluice/internal/observe/verdict"
	"sluice/internal/testkit"
	"sluice/test/lab"
)

// In a user namespace that owns its network, as of a cluster without root, the proxy programs the
// kernel as elsewhere, can see which endpoints answer, and says which settings it may not change.
func TestProxyInAUserNamespace(t *testing.T) {
	t.Parallel()
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, "good.yaml", goodManifests, 0)
	socket := filepath.Join(dir, "run", "proxy.sock")
	ctx, cancel := testkit.WithTimeout(t.Context(), testkit.Timeout)
	defer cancel()
	var log bytes.Buffer // read once the process has ended
	cmd := exec.CommandContext(ctx, binary, "--manifests", dir, "--hostname-override", "node1", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48",
		"--proxy-mode", "nftables", "--control-socket", socket, "-v", "2")
	cmd.Stdout, cmd.Stderr = &log, &log
	root := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL, UidMappings: root, GidMappings: root,
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := control.NewClient(socket)
	defer client.Close()
	testkit.Eventually(t, func() error {
		list, err := question.Services.Ask(ctx, client, &listing.Query{})
		if err != nil {
			return err
		}
		if list.Proxy.Word != verdict.Serving || len(list.Services) != 1 || list.Services[0].Word == verdict.Unknown {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v:\n%s", err, log.String())
	}
	if !strings.Contains(log.String(), "A setting of the kernel stays as it is") || strings.Contains(log.String(), "Cannot see which") {
		t.Errorf("it logged:\n%s", log.String())
	}
}
