package kubelet

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Image is the result of a stage of a Dockerfile: files of an earlier stage, and
// nothing else.
type Image struct {
	Files      map[string]string // by path in the image, their path in the other stage
	Env        []string
	Entrypoint []string
}

// ReadImage reads a stage of a Dockerfile. It must begin with nothing.
func ReadImage(dockerfile, stage string) (*Image, error) {
	text, err := os.ReadFile(dockerfile)
	if err != nil {
		return nil, err
	}
	var image, current *Image
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if words[0] == "FROM" {
			current = nil
			if words[1] == "scratch" && words[len(words)-1] == stage {
				image = &Image{Files: map[string]string{}}
				current = image
			}
			continue
		}
		if current == nil {
			continue
		}
		if err := current.follow(words); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", dockerfile, strings.TrimSpace(line), err)
		}
	}
	if image == nil {
		return nil, fmt.Errorf("%s: there is no stage %s FROM scratch", dockerfile, stage)
	}
	return image, nil
}

// follow executes an instruction.
func (i *Image) follow(words []string) error {
	switch arguments := words[1:]; {
	case words[0] == "COPY" && len(arguments) == 3 && strings.HasPrefix(arguments[0], "--from="):
		i.Files[arguments[2]] = arguments[1]
		return nil
	case words[0] == "ENV" && len(arguments) == 1:
		i.Env = append(i.Env, arguments[0])
		return nil
	case words[0] == "ENTRYPOINT":
		return json.Unmarshal([]byte(strings.Join(arguments, " ")), &i.Entrypoint)
	}
	return fmt.Errorf("what that does to an image is not known here")
}

// unpack creates the image's root file system in a directory. Built are the files
// of the other stage, by their base name.
func (i *Image) unpack(built map[string]string, root string) error {
	for to, from := range i.Files {
		file := built[path.Base(from)]
		if file == "" {
			return fmt.Errorf("the image has a file %s of an earlier stage, which was not built", from)
		}
		if err := copyProgram(file, filepath.Join(root, to)); err != nil {
			return err
		}
	}
	return nil
}

func copyProgram(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		target.Close()
		return err
	}
	return target.Close()
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
