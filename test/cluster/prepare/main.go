// Command prepare builds etcd, kube-apiserver and upstream's kube-proxy into the
// cache for the tests. The tests would do that themselves, but silently and during
// the first of them.
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
	if _, err := apiserver.Build(ctx, func(what string) { fmt.Println(what) }); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
