//go:build linux

package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// Script is a scenario, ready to run.
type Script struct {
	// Name is the name of the file without its extension.
	Name string
	// Title is the first comment line.
	Title string
	// Semantics are the rules that the script is evidence for.
	Semantics []string

	steps []step
	files map[string]string
}

// step is one line of a script.
type step struct {
	line   int
	text   string
	only   []string // the modes it is for, if not for all
	except []string // the modes it is not for
	action action
}

// Load reads a script from a file.
func Load(path string) (*Script, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s, err := Parse(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Parse reads a script and reports everything that is wrong with it.
func Parse(name string, data []byte) (*Script, error) {
	archive := txtar.Parse(data)
	s := &Script{Name: name, files: map[string]string{}}
	for _, f := range archive.Files {
		s.files[f.Name] = string(f.Data)
	}
	p := &parser{script: s, names: map[string]bool{}}
	var errs []error
	for i, line := range strings.Split(string(archive.Comment), "\n") {
		if err := p.parseLine(i+1, strings.TrimSpace(line)); err != nil {
			errs = append(errs, fmt.Errorf("line %d: %q: %w", i+1, line, err))
		}
	}
	if len(s.Semantics) == 0 {
		errs = append(errs, errors.New(`no "# semantics:" line says what the script is evidence for`))
	}
	return s, errors.Join(errs...)
}

// parser holds what earlier lines said.
type parser struct {
	script *Script
	names  map[string]bool // given by let
}

func (p *parser) parseLine(number int, line string) error {
	if comment, ok := strings.CutPrefix(line, "#"); ok {
		p.comment(strings.TrimSpace(comment))
		return nil
	}
	if line == "" {
		return nil
	}
	st := step{line: number, text: line}
	line, err := st.modes(line)
	if err != nil {
		return err
	}
	verb, rest, _ := strings.Cut(line, " ")
	parse, ok := verbs[verb]
	if !ok {
		return fmt.Errorf("unknown step %q", verb)
	}
	if st.action, err = parse(p, strings.TrimSpace(rest)); err != nil {
		return err
	}
	p.script.steps = append(p.script.steps, st)
	return nil
}

// comment takes the title and the semantics from comments.
func (p *parser) comment(text string) {
	if list, ok := strings.CutPrefix(text, "semantics:"); ok {
		p.script.Semantics = append(p.script.Semantics, splitList(list)...)
	} else if p.script.Title == "" {
		p.script.Title = text
	}
}

// modes cuts "only MODES:" and "except MODES:" off a line.
func (s *step) modes(line string) (rest string, err error) {
	for verb, modes := range map[string]*[]string{"only ": &s.only, "except ": &s.except} {
		after, ok := strings.CutPrefix(line, verb)
		if !ok {
			continue
		}
		list, rest, _ := strings.Cut(after, ":")
		*modes = splitList(list)
		unknown := func(mode string) bool { return !slices.Contains(conditions(), mode) }
		if rest == "" || len(*modes) == 0 || slices.ContainsFunc(*modes, unknown) {
			return "", fmt.Errorf("%q must be followed by some of the modes %v and a colon", verb, conditions())
		}
		return strings.TrimSpace(rest), nil
	}
	return line, nil
}

// runsIn reports whether the step is for a mode.
func (s *step) runsIn(mode string) bool {
	meant := func(condition string) bool { return means(condition, mode) }
	return (s.only == nil || slices.ContainsFunc(s.only, meant)) && !slices.ContainsFunc(s.except, meant)
}

// splitList splits a list at commas.
func splitList(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// file checks that the archive has a file.
func (p *parser) file(name string) error {
	if _, ok := p.script.files[name]; !ok {
		return fmt.Errorf("the archive has no file %q", name)
	}
	return nil
}

// LoadAll reads all scripts of a directory, in order of their names.
func LoadAll(dir string) ([]*Script, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var scripts []*Script
	var errs []error
	for _, path := range paths {
		s, err := Load(path)
		scripts, errs = append(scripts, s), append(errs, err)
	}
	return scripts, errors.Join(errs...)
}
