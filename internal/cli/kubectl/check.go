package kubectl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"sluice/internal/base/printable"
	"sluice/internal/cli/check"
)

const (
	// checkEvery is how often the pod of a check is looked at, and checkAloud how long it
	// takes before the user learns what is waited for.
	checkEvery, checkAloud = 500 * time.Millisecond, 3 * time.Second
	// cleanupTimeout is how long the pod may take to be deleted in the end.
	cleanupTimeout = 10 * time.Second
	// configAnnotation carries the configuration to the pod.
	configAnnotation = "sluice/config"
	configDir        = "/etc/sluice"
	configKey        = "config.conf"
)

// checkCommand checks a node by a pod of its own: Sluice need not be there yet.
type checkCommand struct {
	*plugin
	image, config, account, mode string
	try                          bool
	timeout                      time.Duration
}

func (p *plugin) newCheck() *cobra.Command {
	c := &checkCommand{plugin: p}
	cmd := &cobra.Command{
		Use:   "check --node NODE [--image IMAGE] [--config FILE]",
		Short: "Check a node before it is switched to Sluice",
		Long: `check runs kube-proxy check on a node, in a pod that is deleted afterwards: what to do
before the node is switched to Sluice. The pod is on the node's network, and may program
a network namespace of its own. Nothing on the node is changed.

Without --config it takes the configuration of the ConfigMap sluice or, without that,
kube-proxy.`,
		Example: `  kubectl sluice check --node worker-1 --image REGISTRY/sluice:VERSION
  kubectl sluice check --node worker-1 --config new.conf`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.node == "" {
				return errors.New("which node? (set --node)")
			}
			cluster, err := p.access.connect()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout)
			defer cancel()
			a, err := c.run(ctx, cluster, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			a.understand("findings")
			return write(p, cmd.OutOrStdout(), []*answer[check.Report]{a}, check.Write, nil)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.image, "image", "", "Image of Sluice that the node can get. By default the image of a pod of Sluice in the cluster.")
	flags.StringVar(&c.config, "config", "", "File with the configuration that the proxy will have. By default from the ConfigMap sluice or, without it, kube-proxy.")
	flags.StringVar(&c.account, "service-account", "", "Service account of the pod, with the rights of a proxy. By default sluice or kube-proxy.")
	flags.StringVar(&c.mode, "mode", "", "Mode of the proxy, whatever the configuration says.")
	flags.BoolVar(&c.try, "try", false, "Try the mode even if that loads kernel modules.")
	flags.DurationVar(&c.timeout, "timeout", 2*time.Minute, "How long the check may take, with the time to get the image.")
	p.format.AddFlags(cmd)
	return cmd
}

// run creates the pod, waits for its end, and deletes it whatever happens.
func (c *checkCommand) run(ctx context.Context, cluster *cluster, progress io.Writer) (a *answer[check.Report], err error) {
	wanted, err := c.pod(ctx, cluster)
	if err != nil {
		return nil, err
	}
	pods := cluster.core.Pods(cluster.namespace)
	created, err := pods.Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create the pod of the check: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if gone := pods.Delete(ctx, created.Name, metav1.DeleteOptions{}); gone != nil && !apierrors.IsNotFound(gone) {
			err = errors.Join(err, fmt.Errorf("delete pod %s in namespace %s, which is left: %w", created.Name, cluster.namespace, gone))
		}
	}()
	code, err := c.await(ctx, cluster, created.Name, progress)
	if err != nil {
		return nil, err
	}
	text, err := logOf(ctx, pods.GetLogs(created.Name, &corev1.PodLogOptions{}))
	if err != nil {
		return nil, fmt.Errorf("read the log of pod %s: %w", created.Name, err)
	}
	a = &answer[check.Report]{pod: pod{node: c.node, name: created.Name}, text: text, code: code}
	if code != 0 && code != bad {
		a.err = complaint(string(text), code)
	} else if i := bytes.Index(text, []byte("{")); i > 0 {
		a.text = text[i:] // not what it said while it waited
	}
	return a, nil
}

// logOf reads a log, which the node writes.
func logOf(ctx context.Context, request *rest.Request) ([]byte, error) {
	stream, err := request.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, maxAnswer+1))
	if err == nil && len(text) > maxAnswer {
		err = fmt.Errorf("it has more than %d bytes", maxAnswer)
	}
	return text, err
}

// await waits until the pod has ended, and returns the exit code of the check.
func (c *checkCommand) await(ctx context.Context, cluster *cluster, name string, progress io.Writer) (code int, err error) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	began, said := time.Now(), ""
	for {
		p, err := cluster.core.Pods(cluster.namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("somebody else has deleted the pod of the check: %w", err)
		}
		if err == nil {
			var state string
			if code, state, err = progressOf(p); err != nil || state == "" {
				return code, err
			}
			if time.Since(began) >= checkAloud && state != said {
				said = state
				fmt.Fprintf(progress, "Waiting for pod %s on node %s: %s\n", name, c.node, printable.Escape(state))
			}
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = errors.New(cmp.Or(said, "it has not started"))
			}
			return 0, fmt.Errorf("pod %s has not ended: %w (%w; --timeout gives it more time)", name, err, ctx.Err())
		case <-tick.C:
		}
	}
}

// hopeless are states of a container that do not pass by waiting.
var hopeless = map[string]string{
	"ImagePullBackOff":           "set --image to an image that the node can get",
	"ErrImageNeverPull":          "set --image to an image that the node has",
	"InvalidImageName":           "set --image to the name of an image",
	"CreateContainerConfigError": "",
	"CreateContainerError":       "",
	"RunContainerError":          "",
}

// progressOf returns the exit code of a pod that has ended, or else its state.
func progressOf(p *corev1.Pod) (code int, state string, err error) {
	for _, s := range p.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil {
			return int(t.ExitCode), "", nil
		}
		w := s.State.Waiting
		if w == nil {
			continue
		}
		state = strings.TrimSpace(w.Reason + " " + w.Message)
		if remedy, ok := hopeless[w.Reason]; ok {
			err := fmt.Errorf("pod %s cannot run: %s", p.Name, state)
			if remedy != "" {
				err = fmt.Errorf("%w (%s)", err, remedy)
			}
			return 0, state, err
		}
	}
	switch p.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed: // without a word of its container
		return 0, "", fmt.Errorf("pod %s has not run: %s %s", p.Name, p.Status.Reason, p.Status.Message)
	}
	if state == "" {
		state = string(p.Status.Phase)
	}
	return 0, state, nil
}

func (c *checkCommand) pod(ctx context.Context, cluster *cluster) (*corev1.Pod, error) {
	if _, err := cluster.core.Nodes().Get(ctx, c.node, metav1.GetOptions{}); err != nil {
		return nil, fmt.Errorf("find node %s: %w", c.node, err)
	}
	config, err := c.configuration(ctx, cluster)
	if err != nil {
		return nil, err
	}
	image, err := c.findImage(ctx, cluster)
	if err != nil {
		return nil, err
	}
	account, err := c.findAccount(ctx, cluster)
	if err != nil {
		return nil, err
	}
	server, err := apiServer(ctx, cluster)
	if err != nil {
		return nil, err
	}
	pod := checkPod(c.node, image, account)
	pod.Spec.ActiveDeadlineSeconds = ptr.To(int64(c.timeout.Seconds()) + 1) // also if nobody is left to delete it
	container := &pod.Spec.Containers[0]
	container.Env = append(container.Env, server...)
	if config != "" {
		pod.Annotations = map[string]string{configAnnotation: config}
		container.Command = append(container.Command, "--config="+configDir+"/"+configKey)
	}
	if c.mode != "" {
		container.Command = append(container.Command, "--mode="+c.mode)
	}
	if c.try {
		container.Command = append(container.Command, "--try")
	}
	container.Command = append(container.Command, "--json")
	return pod, nil
}

// checkPod returns a pod that checks a node with the defaults, as docs/migrate.md has it.
func checkPod(node, image, account string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "sluice-check-", Labels: map[string]string{"app.kubernetes.io/name": "sluice-check"}},
		Spec: corev1.PodSpec{
			NodeName: node, HostNetwork: true, RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: account,
			TerminationGracePeriodSeconds: ptr.To(int64(1)),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "check", Image: image,
				// The service account is that of the pod, whatever kubeconfig the configuration names.
				Command: []string{"/usr/local/bin/kube-proxy", "check", "--node=$(NODE_NAME)", "--kubeconfig="},
				Env:     []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
				SecurityContext: &corev1.SecurityContext{
					RunAsUser: ptr.To(int64(0)),
					// NET_ADMIN and NET_RAW to read rules, SYS_ADMIN for a network namespace to try them in.
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN", "NET_RAW", "SYS_ADMIN"}},
				},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "config", MountPath: configDir, ReadOnly: true},
					{Name: "modules", MountPath: "/lib/modules", ReadOnly: true},
				},
			}},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{
					Path: configKey, FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + configAnnotation + "']"},
				}}}}},
				{Name: "modules", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/lib/modules"}}},
			},
		},
	}
}

// configuration returns the content of the configuration, "" if there is none.
func (c *checkCommand) configuration(ctx context.Context, cluster *cluster) (string, error) {
	if c.config != "" {
		text, err := os.ReadFile(c.config)
		return string(text), err
	}
	for _, name := range []string{"sluice", "kube-proxy"} {
		m, err := cluster.core.ConfigMaps(cluster.namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return "", fmt.Errorf("read the configuration of the proxy: %w (set --config to a file)", err)
		case m.Data[configKey] != "":
			return m.Data[configKey], nil
		}
	}
	return "", nil
}

func (c *checkCommand) findImage(ctx context.Context, cluster *cluster) (string, error) {
	if c.image != "" {
		return c.image, nil
	}
	list, err := cluster.core.Pods(cluster.namespace).List(ctx, metav1.ListOptions{LabelSelector: defaultSelectors[0]})
	if err != nil {
		return "", fmt.Errorf("find the image of Sluice: %w (set --image)", err)
	}
	for i := range list.Items {
		if containers := list.Items[i].Spec.Containers; len(containers) > 0 {
			return containers[0].Image, nil
		}
	}
	return "", errors.New("there is no pod of Sluice whose image could be taken: set --image to an image that the node can get")
}

func (c *checkCommand) findAccount(ctx context.Context, cluster *cluster) (string, error) {
	if c.account != "" {
		return c.account, nil
	}
	for _, name := range []string{"sluice", "kube-proxy"} {
		_, err := cluster.core.ServiceAccounts(cluster.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return name, nil
		}
		if !apierrors.IsNotFound(err) {
			return "", fmt.Errorf("find a service account: %w (set --service-account)", err)
		}
	}
	return "", fmt.Errorf("namespace %s has no service account sluice or kube-proxy: set --service-account to one that may list Services, EndpointSlices and Nodes", cluster.namespace)
}

// apiServer returns the environment with which a pod reaches the API server itself: its
// Service works only where a proxy does.
func apiServer(ctx context.Context, cluster *cluster) ([]corev1.EnvVar, error) {
	slices, err := cluster.discovery.EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
	if err != nil {
		return nil, fmt.Errorf("find the address of the API server: %w", err)
	}
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			if len(e.Addresses) > 0 && len(s.Ports) > 0 && s.Ports[0].Port != nil {
				return []corev1.EnvVar{
					{Name: "KUBERNETES_SERVICE_HOST", Value: e.Addresses[0]},
					{Name: "KUBERNETES_SERVICE_PORT", Value: strconv.Itoa(int(*s.Ports[0].Port))},
				}, nil
			}
		}
	}
	return nil, nil
}
