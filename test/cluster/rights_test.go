package cluster

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice/test/cluster/apiserver"
	"sluice/test/lab"
)

// All tests run with only the permissions of system:node-proxier: see package
// apiserver.

// TestServiceCIDRsMayBeDenied revokes the permission for ServiceCIDRs, as in
// clusters whose role is older.
func TestServiceCIDRsMayBeDenied(t *testing.T) {
	s := startWithoutProxy(t)
	roles := s.client.RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "system:node-proxier", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := len(role.Rules)
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "servicecidrs") })
	if len(role.Rules) != all-1 && s.gone(nil).kind == lab.Dropped { // older releases have none
		t.Fatalf("the role has no rule for ServiceCIDRs alone: %v", role.Rules)
	}
	if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("ServiceCIDRs are denied", func(ctx context.Context) error {
		review, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: apiserver.KubeProxy.Name, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "list", Group: "networking.k8s.io", Resource: "servicecidrs"}},
		}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed {
			err = errors.New("they are allowed")
		}
		return err
	})
	socket := filepath.Join(t.TempDir(), "control.sock")
	s.proxy = s.startProxy("--control-socket", socket)
	web := s.create("web", "pod1")
	s.expect("a Service", answered(clusterFlows(web), "pod1"))
	if err := s.proxy.Logged("Going on without a kind of object"); err != nil {
		t.Error(err)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	status, err := s.host("node1").Run(t.Context(), lab.Command{Args: []string{path, "status", "--control-socket", socket}})
	if want := "going on without ServiceCIDRs: the proxy may not list it"; err != nil || !strings.Contains(status, want) {
		t.Errorf("%q is not in the status: %v\n%s", want, err, status)
	}
}
