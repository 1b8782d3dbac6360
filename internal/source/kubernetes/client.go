package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	componentconfig "k8s.io/component-base/config/v1alpha1"
)

// NewClient returns a client for the server in a kubeconfig, or master if that
// is set. Without either it is the server of the cluster in which the process
// runs as a pod. agent is the user agent. No request is sent yet.
func NewClient(connection componentconfig.ClientConnectionConfiguration, master, agent string) (clientset.Interface, error) {
	config, err := clientConfig(connection.Kubeconfig, master)
	if err != nil {
		return nil, err
	}
	config.AcceptContentTypes = connection.AcceptContentTypes
	config.ContentType = cmp.Or(connection.ContentType, runtime.ContentTypeProtobuf)
	config.UserAgent = agent
	config.QPS = connection.QPS
	config.Burst = int(connection.Burst)
	detectDeadConnections(config)
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("set up the client of the API server %s: %w", config.Host, err)
	}
	return client, nil
}

func clientConfig(kubeconfig, master string) (*rest.Config, error) {
	if kubeconfig == "" && master == "" {
		return inCluster()
	}
	if err := checkKubeconfig(kubeconfig); err != nil {
		return nil, err
	}
	overrides := &clientcmd.ConfigOverrides{}
	overrides.ClusterInfo.Server = master
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("use the kubeconfig %q: %w", kubeconfig, err)
	}
	return config, nil
}

func inCluster() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("there is no way to the API server: no kubeconfig is given and this is not a pod " +
			"(set clientConnection.kubeconfig or --kubeconfig, or --master)")
	}
	if err != nil {
		return nil, fmt.Errorf("use the pod's service account (mount its token, or set clientConnection.kubeconfig or --kubeconfig): %w", err)
	}
	return config, nil
}

// checkKubeconfig reports common mistakes with a remedy before the file is
// parsed.
func checkKubeconfig(path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the kubeconfig %q does not exist "+
			"(create it, or correct clientConnection.kubeconfig or --kubeconfig): %w", path, err)
	case err != nil:
		return fmt.Errorf("the kubeconfig %q cannot be read (let the proxy read it): %w", path, err)
	}
	return file.Close()
}
