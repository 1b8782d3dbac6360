package kubelet

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Image is what a container runtime keeps of an image: its files, and how to run it.
type Image struct {
	Files      map[string]File // by path
	Env        []string
	Entrypoint []string
	Labels     map[string]string
}

// File is one of an image.
type File struct {
	Mode       fs.FileMode
	Content    []byte
	Attributes map[string]string // extended ones, by name
}

// The parts of OCI's formats that are read here.
type (
	descriptor struct {
		MediaType string            `json:"mediaType"`
		Digest    string            `json:"digest"`
		Size      int               `json:"size"`
		Platform  *platform         `json:"platform"`
		Names     map[string]string `json:"annotations"`
	}
	platform struct {
		OS   string `json:"os"`
		Arch string `json:"architecture"`
	}
	index struct {
		Manifests []descriptor `json:"manifests"`
	}
	manifest struct {
		Config descriptor   `json:"config"`
		Layers []descriptor `json:"layers"`
	}
	config struct {
		platform
		Config struct {
			Env        []string
			Entrypoint []string
			Labels     map[string]string
		} `json:"config"`
	}
)

const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
	nameKey      = "io.containerd.image.name"
)

// ReadImage reads the image of a name for this machine from an archive of an OCI layout,
// as a container runtime imports it. Every digest is verified.
func ReadImage(archive, name string) (*Image, error) {
	text, err := os.ReadFile(archive)
	if err != nil {
		return nil, err
	}
	files, err := untar(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", archive, err)
	}
	image, err := files.image(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", archive, err)
	}
	return image, nil
}

// layout is the files of an OCI layout, by path.
type layout map[string]File

func untar(r io.Reader) (layout, error) {
	files := layout{}
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		switch header.Typeflag {
		case tar.TypeDir:
		case tar.TypeReg:
			content, err := io.ReadAll(archive)
			if err != nil {
				return nil, err
			}
			file := File{Mode: header.FileInfo().Mode(), Content: content}
			for key, value := range header.PAXRecords {
				if name, ok := strings.CutPrefix(key, "SCHILY.xattr."); ok {
					if file.Attributes == nil {
						file.Attributes = map[string]string{}
					}
					file.Attributes[name] = value
				}
			}
			files[path.Join("/", header.Name)] = file
		default:
			return nil, fmt.Errorf("%s is neither a file nor a directory, which is not known here", header.Name)
		}
	}
}

func (l layout) image(name string) (*Image, error) {
	var top, all index
	if err := json.Unmarshal(l["/index.json"].Content, &top); err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	for _, d := range top.Manifests {
		if d.MediaType == indexType && d.Names[nameKey] == name {
			if err := l.decode(d, &all); err != nil {
				return nil, err
			}
		}
	}
	for _, d := range all.Manifests {
		if d.MediaType == manifestType && d.Platform != nil && *d.Platform == (platform{"linux", runtime.GOARCH}) {
			return l.unpacked(d)
		}
	}
	return nil, fmt.Errorf("there is no image %s for linux/%s", name, runtime.GOARCH)
}

func (l layout) unpacked(d descriptor) (*Image, error) {
	var m manifest
	var c config
	if err := errors.Join(l.decode(d, &m), l.decode(m.Config, &c)); err != nil {
		return nil, err
	}
	if c.platform != *d.Platform {
		return nil, fmt.Errorf("the image listed for %v says that it is for %v", *d.Platform, c.platform)
	}
	image := &Image{Files: map[string]File{}, Env: c.Config.Env, Entrypoint: c.Config.Entrypoint, Labels: c.Config.Labels}
	for _, layer := range m.Layers {
		if layer.MediaType != layerType {
			return nil, fmt.Errorf("a layer of type %s is not known here", layer.MediaType)
		}
		content, err := l.blob(layer)
		if err != nil {
			return nil, err
		}
		r, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			return nil, err
		}
		files, err := untar(r)
		if err != nil {
			return nil, err
		}
		for name, file := range files {
			image.Files[name] = file
		}
	}
	return image, nil
}

func (l layout) decode(d descriptor, v any) error {
	content, err := l.blob(d)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, v)
}

// blob is what a descriptor describes.
func (l layout) blob(d descriptor) ([]byte, error) {
	const prefix = "sha256:"
	name := path.Join("/blobs/sha256", d.Digest[min(len(prefix), len(d.Digest)):])
	content := l[name].Content
	if got := fmt.Sprintf("%s%x", prefix, sha256.Sum256(content)); got != d.Digest || len(content) != d.Size {
		return nil, fmt.Errorf("%s is not what it should be: %d bytes with digest %s, want %d with %s", name, len(content), got, d.Size, d.Digest)
	}
	return content, nil
}

// unpack creates the image's root file system in a directory.
func (i *Image) unpack(root string) error {
	for name, file := range i.Files {
		to := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, file.Content, file.Mode.Perm()); err != nil {
			return err
		}
		for key, value := range file.Attributes {
			if err := unix.Setxattr(to, key, []byte(value), 0); err != nil {
				return fmt.Errorf("set %s of %s: %w", key, to, err)
			}
		}
	}
	return nil
}

// links creates a root file system that hard-links the files of another one.
func (i *Image) links(from, root string) error {
	for file := range i.Files {
		to := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.Link(filepath.Join(from, file), to); err != nil {
			return err
		}
	}
	return nil
}
