package architecture

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// link is a link or a picture of Markdown, or the source of an image.
	link = regexp.MustCompile(`\]\(([^)\s]+)\)|<img src="([^"]+)"`)
	// mention is the name of a page in any text, with its section.
	mention = regexp.MustCompile(`\bdocs/[a-z-]+\.md(#[a-z0-9-]+)?`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	code    = regexp.MustCompile("(?ms)^ *```.*?^ *```|`[^`\n]*`")
)

// Every relative link in the documentation leads to a file and, if it names one, to a section of
// it. So does every page that the code, the chart and the alerts name.
func TestLinksResolve(t *testing.T) {
	pages := map[string]map[string]bool{} // the sections of each page
	texts := map[string]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if n := entry.Name(); n == ".git" || n == "dist" || n == "bin" || n == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(name) {
		case ".md", ".go", ".yaml", ".txt", ".tpl", ".json", ".html", ".js":
		default:
			return nil
		}
		text, err := os.ReadFile(name)
		rel, _ := filepath.Rel(root, name)
		rel = filepath.ToSlash(rel)
		texts[rel] = string(text)
		if strings.HasSuffix(rel, ".md") {
			pages[rel] = sections(string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	check := func(from, file, section string) {
		found++
		if sections, ok := pages[file]; ok {
			if section != "" && !sections[section] {
				t.Errorf("%s: %s has no section #%s", from, file, section)
			}
		} else if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Errorf("%s: there is no %s", from, file)
		}
	}
	for name, text := range texts {
		for _, m := range mention.FindAllString(text, -1) {
			file, section, _ := strings.Cut(m, "#")
			check(name, file, section)
		}
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			target := m[1] + m[2]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file, section, _ := strings.Cut(target, "#")
			if file == "" {
				file = path.Base(name)
			}
			check(name, path.Join(path.Dir(name), file), section)
		}
	}
	if found < 200 {
		t.Errorf("found %d links only: the test has holes", found)
	}
}

// sections are the anchors of the headings of a page, as GitHub makes them.
func sections(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		out[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
				return r
			}
			return -1
		}, strings.ToLower(m[1]))] = true
	}
	return out
}
