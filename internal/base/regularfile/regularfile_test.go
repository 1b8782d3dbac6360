package regularfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"sluice/internal/testkit"
)

func TestWhatIsReadAndRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(path string) error
		want error
	}{
		{"a file", func(p string) error { return os.WriteFile(p, []byte("text"), 0o600) }, nil},
		{"a link to a file", func(p string) error {
			return errors.Join(os.WriteFile(p+".target", []byte("text"), 0o600), os.Symlink(p+".target", p))
		}, nil},
		{"a large file", func(p string) error { return os.WriteFile(p, []byte("too long"), 0o600) }, ErrTooLarge},
		{"a pipe that nobody writes to", func(p string) error { return testkit.MakeFIFO(p) }, ErrNotRegular},
		{"a directory", func(p string) error { return os.Mkdir(p, 0o700) }, ErrNotRegular},
		{"a device without an end", func(p string) error { return os.Symlink("/dev/zero", p) }, ErrNotRegular},
		{"nothing", func(string) error { return nil }, fs.ErrNotExist},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}
			data, err := Read(path, 4)
			if !errors.Is(err, tt.want) || err == nil && string(data) != "text" {
				t.Errorf("it reads %q, %v", data, err)
			}
			if err := Check(path); !errors.Is(err, tt.want) && tt.want != ErrTooLarge {
				t.Errorf("Check: %v", err)
			}
		})
	}
}
