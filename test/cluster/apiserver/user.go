package apiserver

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// User is who asks the API server for something.
type User struct {
	Name   string
	Groups []string
}

// The users that every API server knows.
var (
	// Admin may do everything.
	Admin = User{Name: "admin", Groups: []string{"system:masters"}}
	// KubeProxy has the role system:node-proxier. A new API server grants it
	// that by itself.
	KubeProxy = User{Name: "system:kube-proxy"}
)

// Config is how programs written in Go connect as a user, without a limit on
// their pace and without warnings in their logs.
func (s *Server) Config(u User) (*rest.Config, error) {
	id, err := s.authority.client(u)
	if err != nil {
		return nil, fmt.Errorf("make credentials of %s: %w", u.Name, err)
	}
	return &rest.Config{
		Host: "https://" + s.Addr().String(),
		QPS:  -1,

		WarningHandlerWithContext: rest.NoWarnings{},
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   s.authority.certificate,
			CertData: id.certificate,
			KeyData:  id.key,
		},
	}, nil
}

// Kubeconfig writes a file with which other programs connect as a user, and
// returns its path. Close removes it.
func (s *Server) Kubeconfig(u User) (string, error) {
	config, err := s.Config(u)
	if err != nil {
		return "", err
	}
	const name = "sluice"
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	path := s.path("kubeconfig-" + u.Name)
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return "", fmt.Errorf("write kubeconfig of %s: %w", u.Name, err)
	}
	return path, nil
}
