// Command prepare builds etcd, kube-apiserver and upstream's kube-proxy, for Linux and
// for Windows, into the cache for the tests. The tests would do that themselves, but
// silently and during the first of them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"sluice/test/cluster/apiserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	report := func(what string) { fmt.Println(what) }
	_, err := apiserver.Build(ctx, report)
	if err == nil {
		_, err = apiserver.BuildForWindows(ctx, report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
