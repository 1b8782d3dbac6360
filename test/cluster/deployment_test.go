package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
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
)

const (
	// deployed has the objects that make up a deployment, rendered from the Helm chart
	// with its default values.
	deployed = "../../deploy/kustomize/nftables/sluice.yaml"
	// deployedNonRoot is the same with runAsNonRoot.
	deployedNonRoot = releaseDir + "/testdata/nonroot.yaml"
	// byHelm and byHelmInUserspace differ in the value mode. They have all that Helm adds.
	byHelm            = releaseDir + "/testdata/nftables.yaml"
	byHelmInUserspace = releaseDir + "/testdata/userspace.yaml"
	// releaseDir has the program that packs images.
	releaseDir = "../../release"
	// configKey is that of the proxy's configuration in its ConfigMap.
	configKey = "config.conf"
	// nodeCritical is the priority class of the proxy's pods.
	nodeCritical = "system-node-critical"
)

// deployment is a site whose proxy is the pod of the DaemonSet on a node.
type deployment struct {
	*site
	node      string
	daemonSet *appsv1.DaemonSet
	image     *kubelet.Image
	machine   *kubelet.Machine
	object    *corev1.Pod // of the DaemonSet
	pod       *kubelet.Pod
	container *kubelet.Container // the one that runs
}

// deploy does what docs/install.md says, and then what the controller manager and
// the kubelet do, except starting containers.
func (s *site) deploy() *deployment {
	s.Helper()
	d := s.install(deployed)
	d.join("node1")
	d.admitPod()
	return d
}

// install creates the objects of a file, and builds the image.
func (s *site) install(file string) *deployment {
	s.Helper()
	d := &deployment{site: s}
	s.createRootCertificates()
	for _, object := range s.objects(file) {
		if err := d.apply(object); err != nil {
			s.Fatal(err)
		}
	}
	d.image = s.image(d.daemonSet.Spec.Template.Spec.Containers[0].Image)
	return d
}

// join starts the kubelet of a node.
func (d *deployment) join(node string) {
	d.Helper()
	d.node = node
	var err error
	if d.machine, err = kubelet.Boot(d.host(node)); err != nil {
		d.Fatal(err)
	}
	d.closeLater(d.machine.Shutdown)
}

// redeploy does what an upgrade does with the DaemonSet of a file, except stopping and
// starting containers.
func (d *deployment) redeploy(file string) {
	d.Helper()
	for _, object := range d.objects(file) {
		o, ok := object.(*appsv1.DaemonSet)
		if !ok {
			continue
		}
		sets := d.client.AppsV1().DaemonSets(o.Namespace)
		if err := sets.Delete(d.Context(), o.Name, metav1.DeleteOptions{}); err != nil {
			d.Fatal(err)
		}
		if err := d.apply(o); err != nil {
			d.Fatal(err)
		}
	}
	d.admitPod()
}

// admitPod creates the pod of the DaemonSet and prepares it on the machine.
func (d *deployment) admitPod() {
	d.Helper()
	d.eventually("there is a pod", d.createPod)
	var err error
	if d.pod, err = d.machine.Pod(d.Context(), kubelet.Options{Client: d.client, Pod: d.object, Image: d.image}); err != nil {
		d.Fatal(err)
	}
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

// image builds the image as "make image" does, for this machine only, and imports it from
// its archive as a container runtime does.
func (s *site) image(name string) *kubelet.Image {
	s.Helper()
	path, err := binary()
	if err != nil {
		s.Fatal(err)
	}
	out := s.TempDir()
	pack := exec.CommandContext(s.Context(), "go", "run", ".", "-version", "dev", "-out", out, "-binary", "linux/"+goruntime.GOARCH+"="+path)
	pack.Dir = releaseDir
	if text, err := pack.CombinedOutput(); err != nil {
		s.Fatalf("%v: %v\n%s", pack, err, text)
	}
	image, err := kubelet.ReadImage(filepath.Join(out, "sluice-dev-image.tar"), name)
	if err != nil {
		s.Fatal(err)
	}
	return image
}

// objects returns the objects of a file.
func (s *site) objects(file string) (objects []runtime.Object) {
	s.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		s.Fatal(err)
	}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
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

// dryRun lets the API server check the objects of a file as it does before it stores
// them. A field that it does not know is an error.
func (s *site) dryRun(file string) {
	s.Helper()
	paths := map[string]string{
		"ServiceAccount":     "/api/v1/namespaces/kube-system/serviceaccounts",
		"ConfigMap":          "/api/v1/namespaces/kube-system/configmaps",
		"DaemonSet":          "/apis/apps/v1/namespaces/kube-system/daemonsets",
		"ClusterRole":        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	}
	text, err := os.ReadFile(file)
	if err != nil {
		s.Fatal(err)
	}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for checked := 0; ; checked++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) && checked > 0 {
			return
		}
		var object metav1.TypeMeta
		if err == nil {
			err = yaml.Unmarshal(document, &object)
		}
		if err != nil {
			s.Fatalf("%s: %v", file, err)
		}
		s.eventually("the API server accepts the "+object.Kind+" of "+file, func(ctx context.Context) error {
			return s.client.CoreV1().RESTClient().Post().AbsPath(paths[object.Kind]).
				Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationStrict).
				SetHeader("Content-Type", "application/yaml").Body(document).Do(ctx).Error()
		})
	}
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
		d.daemonSet, err = d.client.AppsV1().DaemonSets(o.Namespace).Create(ctx, d.setAddress(o), metav1.CreateOptions{})
	default:
		err = fmt.Errorf("unexpected %T", object)
	}
	return err
}

// createPod creates the DaemonSet's pod of the node, as its controller does.
func (d *deployment) createPod(ctx context.Context) (err error) {
	template := d.daemonSet.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.GenerateName, pod.Spec.NodeName = d.daemonSet.Name+"-", d.node
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
	d.edit(o, configKey, "oomScoreAdj: -997", fmt.Sprintf("oomScoreAdj: %d", score))
	o.Data[configKey] += conntrack
	return o
}

// setAddress sets where the nodes reach the API server.
func (d *deployment) setAddress(o *appsv1.DaemonSet) *appsv1.DaemonSet {
	o = o.DeepCopy()
	set := map[string]string{
		"KUBERNETES_SERVICE_HOST": d.server.Addr().Addr().String(),
		"KUBERNETES_SERVICE_PORT": strconv.Itoa(int(d.server.Addr().Port())),
	}
	for _, containers := range [][]corev1.Container{o.Spec.Template.Spec.InitContainers, o.Spec.Template.Spec.Containers} {
		for i := range containers {
			for j, e := range containers[i].Env {
				if value, ok := set[e.Name]; ok {
					containers[i].Env[j].Value = value
				}
			}
		}
	}
	return o
}

// configure changes the configuration in the cluster, and refreshes the volume.
func (d *deployment) configure(from, to string) {
	d.Helper()
	maps := d.client.CoreV1().ConfigMaps(d.object.Namespace)
	object, err := maps.Get(d.Context(), d.daemonSet.Name, metav1.GetOptions{})
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
