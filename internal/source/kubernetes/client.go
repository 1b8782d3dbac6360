package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	componentconfig "k8s.io/component-base/config/v1alpha1"

	"sluice/internal/base/regularfile"
)

// withoutManagedFields asks the server to leave out who set which field of an object, which is a good
// part of small ones. Servers that do not know the parameter ignore it.
const withoutManagedFields = ";drop=metadata.managedFields"

// NewClient returns a client for the server in a kubeconfig, or master if that
// is set. Without either it is the server of the cluster in which the process
// runs as a pod. agent is the user agent. No request is sent yet.
func NewClient(connection componentconfig.ClientConnectionConfiguration, master, agent string) (clientset.Interface, error) {
	config, err := Config(connection, master, agent)
	if err != nil {
		return nil, err
	}
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("set up the client of the API server %s: %w", config.Host, err)
	}
	return client, nil
}

// Config returns the configuration of the client that NewClient returns.
func Config(connection componentconfig.ClientConnectionConfiguration, master, agent string) (*rest.Config, error) {
	config, err := clientConfig(connection.Kubeconfig, master)
	if err != nil {
		return nil, err
	}
	config.ContentType = cmp.Or(connection.ContentType, runtime.ContentTypeProtobuf)
	config.AcceptContentTypes = cmp.Or(connection.AcceptContentTypes, config.ContentType+withoutManagedFields+", */*")
	config.UserAgent = agent
	config.QPS = connection.QPS
	config.Burst = int(connection.Burst)
	followToken(config)
	detectDeadConnections(config)
	return config, nil
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
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	if raw, err := rules.Load(); err == nil {
		if err := checkCredentials(kubeconfig, raw); err != nil {
			return nil, err
		}
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
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
	err := regularfile.Check(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the kubeconfig %q does not exist "+
			"(create it, or correct clientConnection.kubeconfig or --kubeconfig): %w", path, err)
	case errors.Is(err, regularfile.ErrNotRegular):
		return fmt.Errorf("the kubeconfig %q cannot be used (correct clientConnection.kubeconfig or --kubeconfig): %w", path, err)
	case err != nil:
		return fmt.Errorf("the kubeconfig %q cannot be read (let the proxy read it): %w", path, err)
	}
	return nil
}

// checkCredentials refuses files that could block whoever reads them. What else may be wrong
// with them the client says.
func checkCredentials(kubeconfig string, config *clientcmdapi.Config) error {
	check := func(entry, field, path string) error {
		if path == "" || !errors.Is(regularfile.Check(path), regularfile.ErrNotRegular) {
			return nil
		}
		return fmt.Errorf("the kubeconfig %q, %s, %s: %s cannot be used: %w", kubeconfig, entry, field, path, regularfile.ErrNotRegular)
	}
	for name, c := range config.Clusters {
		if err := check("cluster "+name, "certificate-authority", c.CertificateAuthority); err != nil {
			return err
		}
	}
	for name, u := range config.AuthInfos {
		if err := cmp.Or(check("user "+name, "tokenFile", u.TokenFile), check("user "+name, "client-certificate", u.ClientCertificate),
			check("user "+name, "client-key", u.ClientKey)); err != nil {
			return err
		}
	}
	return nil
}
