package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (p *Pod) volumeDir(name string) string { return p.machine.path("volumes", name) }

// mountSource is what a container gets as a volume: a directory of the machine, which is there if the
// machine has none, or that of the pod.
func (p *Pod) mountSource(name string) string {
	for _, v := range p.object.Spec.Volumes {
		if v.Name != name || v.HostPath == nil {
			continue
		}
		if _, err := os.Stat(v.HostPath.Path); err == nil {
			return v.HostPath.Path
		}
	}
	return p.volumeDir(name)
}

// mountVolumes makes the pod's volumes. They outlive its containers.
func (p *Pod) mountVolumes(ctx context.Context) error {
	for _, v := range p.object.Spec.Volumes {
		dir := p.volumeDir(v.Name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if v.EmptyDir == nil {
			continue
		}
		if v.EmptyDir.Medium != corev1.StorageMediumMemory || v.EmptyDir.SizeLimit == nil {
			return fmt.Errorf("volume %s is not in memory, or without a limit", v.Name)
		}
		options := fmt.Sprintf("size=%d,mode=0777", v.EmptyDir.SizeLimit.Value())
		if _, err := p.machine.run(ctx, "mount", "-t", "tmpfs", "-o", options, "tmpfs", dir); err != nil {
			return err
		}
	}
	return p.Refresh(ctx)
}

// Refresh fills the volumes with what the API server has for them now, as kubelets
// do from time to time.
func (p *Pod) Refresh(ctx context.Context) error {
	for _, v := range p.object.Spec.Volumes {
		if v.EmptyDir != nil || v.HostPath != nil {
			continue
		}
		files, mode, err := p.content(ctx, &v)
		if err == nil {
			err = publish(p.volumeDir(v.Name), files, mode)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	return nil
}

// content is the files of a volume, with the mode that they have.
func (p *Pod) content(ctx context.Context, v *corev1.Volume) (files map[string]string, mode os.FileMode, err error) {
	switch {
	case v.ConfigMap != nil:
		files, err = p.configMap(ctx, v.ConfigMap.Name, v.ConfigMap.Items)
		return files, os.FileMode(*v.ConfigMap.DefaultMode), err
	case v.DownwardAPI != nil:
		files, err = p.fields(v.DownwardAPI.Items)
		return files, os.FileMode(*v.DownwardAPI.DefaultMode), err
	case v.Projected != nil:
		files, err = p.projected(ctx, v.Projected.Sources)
		return files, os.FileMode(*v.Projected.DefaultMode), err
	}
	return nil, 0, errors.New("what it is made of is not known here")
}

// projected is the content of a volume with several sources.
func (p *Pod) projected(ctx context.Context, sources []corev1.VolumeProjection) (map[string]string, error) {
	all := map[string]string{}
	for _, s := range sources {
		files, err := p.source(ctx, &s)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, files)
	}
	return all, nil
}

func (p *Pod) source(ctx context.Context, s *corev1.VolumeProjection) (map[string]string, error) {
	switch {
	case s.ConfigMap != nil:
		return p.configMap(ctx, s.ConfigMap.Name, s.ConfigMap.Items)
	case s.ServiceAccountToken != nil:
		token, err := p.token(ctx, s.ServiceAccountToken)
		return map[string]string{s.ServiceAccountToken.Path: token}, err
	case s.DownwardAPI != nil:
		return p.fields(s.DownwardAPI.Items)
	}
	return nil, errors.New("one of its sources is not known here")
}

// fields are files with values of the Pod's fields.
func (p *Pod) fields(items []corev1.DownwardAPIVolumeFile) (map[string]string, error) {
	files := map[string]string{}
	for _, item := range items {
		value, err := p.field(item.FieldRef)
		if err != nil {
			return nil, err
		}
		files[item.Path] = value
	}
	return files, nil
}

// configMap is the content of a ConfigMap, or of some of its keys.
func (p *Pod) configMap(ctx context.Context, name string, items []corev1.KeyToPath) (map[string]string, error) {
	object, err := p.client.CoreV1().ConfigMaps(p.object.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || len(items) == 0 {
		return object.Data, err
	}
	files := map[string]string{}
	for _, item := range items {
		content, ok := object.Data[item.Key]
		if !ok {
			return nil, fmt.Errorf("ConfigMap %s has no key %s", name, item.Key)
		}
		files[item.Path] = content
	}
	return files, nil
}

// token is a new one of the pod's service account, for this pod only.
func (p *Pod) token(ctx context.Context, source *corev1.ServiceAccountTokenProjection) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.object.Name, UID: p.object.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	accounts := p.client.CoreV1().ServiceAccounts(p.object.Namespace)
	granted, err := accounts.CreateToken(ctx, p.object.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return granted.Status.Token, nil
}

// publish puts files into a volume by way of links, so that a later content takes
// the place of an earlier one at once.
func publish(dir string, files map[string]string, mode os.FileMode) error {
	content, err := os.MkdirTemp(dir, "..content-")
	if err != nil {
		return err
	}
	if err := os.Chmod(content, 0o755); err != nil {
		return err
	}
	const current = "..data"
	for name, text := range files {
		file := filepath.Join(content, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		if err := os.Chmod(file, mode); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(current, name), filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	earlier, err := os.Readlink(filepath.Join(dir, current))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next := filepath.Join(dir, "..data_next")
	if err := os.Symlink(filepath.Base(content), next); err != nil {
		return err
	}
	if err := os.Rename(next, filepath.Join(dir, current)); err != nil || earlier == "" {
		return err
	}
	return os.RemoveAll(filepath.Join(dir, earlier))
}
