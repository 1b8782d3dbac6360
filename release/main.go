package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// request is what to pack.
type request struct {
	version  string
	time     time.Time
	binaries []binary
	chart    string // directory, empty for none
	out      string
}

// binary is a program for one platform.
type binary struct {
	program, os, arch, path string
}

// The programs of a release.
const (
	proxy  = "kube-proxy"
	plugin = "kubectl-sluice"
)

func (b binary) name() string {
	name := b.program + "-" + b.os + "-" + b.arch
	if b.os == "windows" {
		name += ".exe"
	}
	return name
}

func run(args []string, w io.Writer) error {
	r, err := parse(args)
	if err != nil {
		return err
	}
	files, err := r.pack()
	if err != nil {
		return err
	}
	for _, file := range files {
		fmt.Fprintln(w, filepath.Join(r.out, file))
	}
	return nil
}

func parse(args []string) (*request, error) {
	r := &request{}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error
	flags.StringVar(&r.version, "version", "", "version of the release, which is also the tag of the image")
	flags.StringVar(&r.chart, "chart", "", "directory of the Helm chart; without it, only the image is built")
	flags.StringVar(&r.out, "out", "", "directory to write to")
	seconds := flags.Int64("time", 0, "time of all files, in seconds since 1970")
	for name, program := range map[string]string{"binary": proxy, "plugin": plugin} {
		flags.Func(name, "PLATFORM=PATH of "+program+", such as linux/amd64=bin/"+program+"; can be repeated", func(text string) error {
			platform, path, ok := strings.Cut(text, "=")
			os, arch, ok2 := strings.Cut(platform, "/")
			if !ok || !ok2 || os == "" || arch == "" || path == "" {
				return errors.New("it is not PLATFORM=PATH")
			}
			r.binaries = append(r.binaries, binary{program, os, arch, path})
			return nil
		})
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	r.time = time.Unix(*seconds, 0).UTC()
	if r.version == "" || r.out == "" || len(r.binaries) == 0 {
		return nil, errors.New("-version, -out and at least one -binary are needed")
	}
	slices.SortFunc(r.binaries, func(a, b binary) int { return strings.Compare(a.name(), b.name()) })
	return r, nil
}

// pack writes all files and returns their names. What another version left in the directory
// goes: it would be mistaken for a part of this one.
func (r *request) pack() ([]string, error) {
	if err := r.removeOld(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return nil, err
	}
	files, err := r.packImages()
	if err != nil || r.chart == "" {
		return files, err
	}
	for _, b := range r.binaries {
		if err := copyFile(b.path, filepath.Join(r.out, b.name())); err != nil {
			return nil, err
		}
		list, err := sbom(b.path, r.version, r.time)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(r.out, b.name()+sbomSuffix), list, 0o644); err != nil {
			return nil, err
		}
		files = append(files, b.name(), b.name()+sbomSuffix)
	}
	chart, err := r.packChart()
	if err != nil {
		return nil, err
	}
	files = append(files, chart)
	slices.Sort(files)
	sums, err := checksums(r.out, files)
	if err != nil {
		return nil, err
	}
	const name = "SHA256SUMS"
	return append(files, name), os.WriteFile(filepath.Join(r.out, name), []byte(sums), 0o644)
}

// removeOld removes the files of earlier runs, and no others.
func (r *request) removeOld() error {
	for _, pattern := range []string{proxy + "-*", plugin + "-*", "sluice-*.tar", "sluice-*.tgz", "SHA256SUMS"} {
		old, err := filepath.Glob(filepath.Join(r.out, pattern))
		if err != nil {
			return err
		}
		for _, file := range old {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// checksums is what sha256sum --check reads.
func checksums(dir string, files []string) (string, error) {
	var out strings.Builder
	for _, name := range files {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		hash := sha256.New()
		_, err = io.Copy(hash, f)
		f.Close()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "%x  %s\n", hash.Sum(nil), name)
	}
	return out.String(), nil
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}
