package kubectl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typeddiscoveryv1 "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"sluice/internal/base/printable"
)

// defaultSelectors find the pods of the proxy: those of the manifests and the chart, on Linux and on
// Windows, and those that took the place of kubeadm's.
var defaultSelectors = []string{"app.kubernetes.io/name=sluice", "app.kubernetes.io/name=sluice-windows", "k8s-app=kube-proxy"}

// nameLabel is the label of the chart for pods of a proxy that serves only Services of its name, beside
// another one.
const nameLabel = "sluice/service-proxy-name"

// access is how the user reaches the cluster.
type access struct {
	kubeconfig, context, namespace string
	selectors                      []string
	serviceProxyName               string
}

// chosen returns the selectors to use: those of the pods of one name, if there is one.
func (a *access) chosen() []string {
	if a.serviceProxyName == "" {
		return a.selectors
	}
	return []string{nameLabel + "=" + a.serviceProxyName}
}

// cluster is the proxies of a cluster.
type cluster struct {
	config    *rest.Config
	core      *typedcorev1.CoreV1Client
	discovery *typeddiscoveryv1.DiscoveryV1Client
	namespace string
	selectors []string
}

func (a *access) connect() (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.UserAgent = "kubectl-sluice"
	core, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	discovery, err := typeddiscoveryv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &cluster{config: config, core: core, discovery: discovery, namespace: a.namespace, selectors: a.chosen()}, nil
}

type pod struct{ node, name, container, command string }

// pods returns the running pods of the proxy by node, those of one node if it is named.
// Of several on a node it is the one that the first selector finds, and rather one that serves all Services
// than one with a name.
func (c *cluster) pods(ctx context.Context, node string) ([]pod, error) {
	var all []pod
	var waiting []string
	for _, selector := range c.selectors {
		list, err := c.core.Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, fmt.Errorf("list the pods of the proxy: %w", err)
		}
		slices.SortStableFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Labels[nameLabel], b.Labels[nameLabel]) })
		for i := range list.Items {
			p := &list.Items[i]
			switch known := slices.ContainsFunc(all, func(o pod) bool { return o.node == p.Spec.NodeName }); {
			case known || p.Spec.NodeName == "" || node != "" && p.Spec.NodeName != node || len(p.Spec.Containers) == 0:
			case p.Status.Phase != corev1.PodRunning:
				waiting = append(waiting, fmt.Sprintf("%s on %s is %s", p.Name, p.Spec.NodeName, p.Status.Phase))
			default:
				all = append(all, podOf(p))
			}
		}
	}
	slices.SortFunc(all, func(a, b pod) int { return strings.Compare(a.node, b.node) })
	if len(all) > 0 {
		return all, nil
	}
	where := ""
	if node != "" {
		where = " on node " + node
	}
	if len(waiting) > 0 {
		return nil, fmt.Errorf("no pod of the proxy runs%s: %s", where, printable.List(waiting, func(s string) string { return s }))
	}
	return nil, fmt.Errorf("no pod of the proxy%s in namespace %s has one of the labels %s: choose others by --namespace and --selector",
		where, c.namespace, strings.Join(c.selectors, ", "))
}

func podOf(p *corev1.Pod) pod {
	container := &p.Spec.Containers[0]
	out := pod{node: p.Spec.NodeName, name: p.Name, container: container.Name, command: "kube-proxy"}
	if len(container.Command) > 0 {
		out.command = container.Command[0]
	}
	return out
}
