//go:build upstream

// Command upstream runs the code of upstream's kube-proxy for tests.
//
//	upstream list            prints its feature gates in the form of internal/config/gates.txt
//	upstream flags           prints its flags: name, shorthand, default, and whether it is deprecated
//	upstream write DIRECTORY brings gates.txt and gates_removed.txt there up to date
//	upstream run             reads command lines, each a list in JSON, and runs them one after
//	                         the other; prints for each, in JSON, the error it ended with
//	upstream hollow KUBECONFIG N
//	                         runs N proxies that program nothing
//
// Running a command line in this process takes a hundredth of the time of a
// separate process. Only those that write their configuration return.
//
// To be run after an update of Kubernetes in go.mod:
//
//	cd test/cluster && go run -tags upstream ./upstream write ../../internal/config
//
// The build tag keeps Kubernetes out of what vet and staticcheck read.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
)

func main() {
	out := os.Stdout
	os.Stdout = os.Stderr // for logs that go there
	if err := run(os.Args[1:], os.Stdin, out); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "list":
		_, err := io.WriteString(out, list())
		return err
	case len(args) == 1 && args[0] == "flags":
		app.NewProxyCommand().Flags().VisitAll(func(f *pflag.Flag) {
			fmt.Fprintf(out, "%s %q %q %t\n", f.Name, f.Shorthand, f.DefValue, f.Deprecated != "")
		})
		return nil
	case len(args) == 2 && args[0] == "write":
		return write(args[1])
	case len(args) == 1 && args[0] == "run":
		return runAll(in, out)
	case len(args) == 3 && args[0] == "hollow":
		return hollow(args[1], args[2], in, out)
	}
	return errors.New("use upstream list, upstream flags, upstream write DIRECTORY, upstream run, or upstream hollow KUBECONFIG N")
}
