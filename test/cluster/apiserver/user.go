package apiserver

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// User is a user of the API server.
type User struct {
	Name   string
	Groups []string
}

// The users that every API server knows.
var (
	// Admin has all permissions.
	Admin = User{Name: "admin", Groups: []string{"system:masters"}}
	// KubeProxy has only the role system:node-proxier, which a new API server grants
	// it.
	KubeProxy = User{Name: "system:kube-proxy"}
)

// forEverybody are the bindings by which a new API server grants permissions to all
// users: discovery, and reviewing their own access.
var forEverybody = []string{"system:discovery", "system:basic-user", "system:public-info-viewer"}

// denyDiscovery revokes those permissions from all but the admin, also after a
// restart.
func (s *Server) denyDiscovery(ctx context.Context) error {
	bindings := s.admin.RbacV1().ClusterRoleBindings()
	for _, name := range forEverybody {
		binding, err := bindings.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			metav1.SetMetaDataAnnotation(&binding.ObjectMeta, rbacv1.AutoUpdateAnnotationKey, "false")
			binding.Subjects = nil
			_, err = bindings.Update(ctx, binding, metav1.UpdateOptions{})
		}
		if err != nil {
			return fmt.Errorf("take the rights of %s from everybody: %w", name, err)
		}
	}
	return nil
}

// Config returns the configuration for Go clients of a user, without rate limit and
// without warnings in their logs.
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

// Kubeconfig writes a file with which other clients connect as a user, and
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
