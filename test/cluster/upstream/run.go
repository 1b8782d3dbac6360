//go:build upstream

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
	internal "k8s.io/kubernetes/pkg/proxy/apis/config"
	conversion "k8s.io/kubernetes/pkg/proxy/apis/config/v1alpha1"
)

// pristine are the feature gates with nothing set.
var pristine = utilfeature.DefaultMutableFeatureGate.DeepCopy()

func runAll(in io.Reader, out io.Writer) error {
	lines, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var args []string
		if err := lines.Decode(&args); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := answers.Encode(answerTo(args)); err != nil {
			return err
		}
	}
}

// answer is the outcome of a command line.
type answer struct {
	Error string
	// Config is the configuration that the proxy would start with, if the command line
	// does not write it.
	Config *v1alpha1.KubeProxyConfiguration `json:",omitempty"`
}

// answerTo recovers from panics of upstream at some command lines.
func answerTo(args []string) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a.Error = fmt.Sprint("panic: ", p)
		}
	}()
	var err error
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--write-config-to") }) {
		err = runOne(args)
	} else {
		a.Config, err = almostStart(args)
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// unmeasured are feature gates without metrics, which would take most of the time.
type unmeasured struct {
	featuregate.MutableVersionedFeatureGate
}

// AddMetrics is called by main of upstream.
func (unmeasured) AddMetrics() {}

// runOne does what main of upstream does, after undoing what the previous run left
// in this process.
func runOne(args []string) error {
	gates := unmeasured{pristine.DeepCopy()}
	utilfeature.DefaultMutableFeatureGate, utilfeature.DefaultFeatureGate = gates, gates
	if err := logsapi.ResetForTest(gates); err != nil {
		return err
	}
	cmd := app.NewProxyCommand()
	cmd.SetArgs(args)
	return cli.RunNoErrOutput(cmd)
}

// almostStart does what upstream does before it serves. There is no other way to
// get its configuration: the flags for ports do not affect what it writes.
func almostStart(args []string) (*v1alpha1.KubeProxyConfiguration, error) {
	options, flags := app.NewOptions(), pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	options.AddFlags(flags)
	if err := errors.Join(flags.Parse(args), options.Complete(flags), options.Validate()); err != nil {
		return nil, err
	}
	field := reflect.ValueOf(options).Elem().FieldByName("config")
	config := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Interface().(*internal.KubeProxyConfiguration)
	out := &v1alpha1.KubeProxyConfiguration{}
	return out, conversion.Convert_config_KubeProxyConfiguration_To_v1alpha1_KubeProxyConfiguration(config, out, nil)
}
