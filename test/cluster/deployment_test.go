package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"sluice/test/cluster/apiserver"
	"sluice/test/cluster/kubelet"
	"sluice/test/lab"
)

const (
	// deployDir has the manifests and the Dockerfile.
	deployDir = "../../deploy"
	// configKey is that of the proxy's configuration in its ConfigMap.
	configKey = "config.conf"
	// nodeCritical is the priority class of the proxy's pods.
	nodeCritical = "system-node-critical"
)

// deployment is a site whose proxy is the pod of the DaemonSet.
type deployment struct {
	*site
	daemonSet *appsv1.DaemonSet
	object    *corev1.Pod // of the DaemonSet on node1
	pod       *kubelet.Pod
	container *kubelet.Container // the one that runs
}

// deploy does what deploy/README.md says, and then what the controller manager and
// the kubelet do, except starting containers.
func (s *site) deploy() *deployment {
	s.Helper()
	d := &deployment{site: s}
	s.createRootCertificates()
	for _, object := range s.manifests() {
		if err := d.apply(object); err != nil {
			s.Fatal(err)
		}
	}
	s.eventually("there is a pod", d.createPod)
	path, err := binary()
	if err != nil {
		s.Fatal(err)
	}
	image, err := kubelet.ReadImage(filepath.Join(deployDir, "Dockerfile"), "minimal")
	if err != nil {
		s.Fatal(err)
	}
	machine, err := kubelet.Boot(s.host("node1"))
	if err != nil {
		s.Fatal(err)
	}
	s.closeLater(machine.Shutdown)
	d.pod, err = machine.Pod(s.Context(), kubelet.Options{
		Client: s.client, Pod: d.object, Image: image, Built: map[string]string{"kube-proxy": path},
	})
	if err != nil {
		s.Fatal(err)
	}
	return d
}

// createRootCertificates creates what the controller manager puts into every
// namespace, so that pods can verify the API server.
func (s *site) createRootCertificates() {
	s.Helper()
	config, err := s.server.Config(apiserver.Admin)
	if err != nil {
		s.Fatal(err)
	}
	s.eventually("there is a ConfigMap with the root certificate", func(ctx context.Context) error {
		_, err := s.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"},
			Data:       map[string]string{"ca.crt": string(config.CAData)},
		}, metav1.CreateOptions{})
		return err
	})
}

// manifests returns the objects of the directory, in the order of their
// dependencies.
func (s *site) manifests() []runtime.Object {
	s.Helper()
	var objects []runtime.Object
	for _, file := range []string{"serviceaccount.yaml", "rbac.yaml", "configmap.yaml", "daemonset.yaml"} {
		text, err := os.ReadFile(filepath.Join(deployDir, file))
		if err != nil {
			s.Fatal(err)
		}
		documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				s.Fatalf("%s: %v", file, err)
			}
			object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
			if err != nil {
				s.Fatalf("%s: %v", file, err)
			}
			objects = append(objects, object)
		}
	}
	return objects
}

// apply creates an object.
func (d *deployment) apply(object runtime.Object) (err error) {
	ctx := d.Context()
	switch o := object.(type) {
	case *corev1.ServiceAccount:
		_, err = d.client.CoreV1().ServiceAccounts(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *rbacv1.ClusterRole:
		_, err = d.client.RbacV1().ClusterRoles().Create(ctx, o, metav1.CreateOptions{})
	case *rbacv1.ClusterRoleBinding:
		_, err = d.client.RbacV1().ClusterRoleBindings().Create(ctx, o, metav1.CreateOptions{})
	case *corev1.ConfigMap:
		_, err = d.client.CoreV1().ConfigMaps(o.Namespace).Create(ctx, d.set(o), metav1.CreateOptions{})
	case *appsv1.DaemonSet:
		d.daemonSet, err = d.client.AppsV1().DaemonSets(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	default:
		err = fmt.Errorf("unexpected %T", object)
	}
	return err
}

// createPod creates the DaemonSet's pod of node1, as its controller does.
func (d *deployment) createPod(ctx context.Context) (err error) {
	template := d.daemonSet.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.GenerateName, pod.Spec.NodeName = d.daemonSet.Name+"-", "node1"
	d.object, err = d.client.CoreV1().Pods(d.daemonSet.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// conntrack are the sysctls of connection tracking. The limit of connections
// belongs to the whole machine, so that a lab cannot set it.
const conntrack = `
conntrack:
  maxPerCore: 0
  tcpEstablishedTimeout: 5h
  udpTimeout: 45s
`

// sysctls are the resulting values.
var sysctls = map[string]string{"nf_conntrack_tcp_timeout_established": "18000", "nf_conntrack_udp_timeout": "45"}

// set fills in the settings for this cluster, as an administrator does.
func (d *deployment) set(o *corev1.ConfigMap) *corev1.ConfigMap {
	d.Helper()
	score, err := kubelet.OOMScoreAdj(nodeCritical)
	if err != nil {
		d.Fatal(err)
	}
	o = o.DeepCopy()
	d.edit(o, "kubeconfig.conf", "https://api.cluster.example:6443", "https://"+d.server.Addr().String())
	d.edit(o, configKey, "clusterCIDR: 10.244.0.0/16", fmt.Sprintf("clusterCIDR: %v,%v", lab.ClusterCIDRs[0], lab.ClusterCIDRs[1]))
	d.edit(o, configKey, "oomScoreAdj: -997", fmt.Sprintf("oomScoreAdj: %d", score))
	o.Data[configKey] += conntrack
	return o
}

// configure changes the configuration in the cluster, and refreshes the volume.
func (d *deployment) configure(from, to string) {
	d.Helper()
	maps := d.client.CoreV1().ConfigMaps(d.object.Namespace)
	object, err := maps.Get(d.Context(), "kube-proxy", metav1.GetOptions{})
	if err != nil {
		d.Fatal(err)
	}
	d.edit(object, configKey, from, to)
	if _, err := maps.Update(d.Context(), object, metav1.UpdateOptions{}); err != nil {
		d.Fatal(err)
	}
	if err := d.pod.Refresh(d.Context()); err != nil {
		d.Fatal(err)
	}
}

// edit replaces a text that must occur once.
func (d *deployment) edit(o *corev1.ConfigMap, key, from, to string) {
	d.Helper()
	if strings.Count(o.Data[key], from) != 1 {
		d.Fatalf("%s does not have %q once:\n%s", key, from, o.Data[key])
	}
	o.Data[key] = strings.Replace(o.Data[key], from, to, 1)
}
