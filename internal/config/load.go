package config

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"sluice/internal/base/regularfile"
	"sluice/internal/base/spelling"
	"sluice/internal/base/yamlsyntax"
	"sluice/internal/model"
)

// Errors of a configuration file as a whole.
var (
	ErrEmpty   = errors.New("there is no configuration in it")
	ErrVersion = fmt.Errorf("it is not a configuration of a known version: it must begin with apiVersion: %s and kind: %s",
		v1alpha1.SchemeGroupVersion, kind)
)

// read reads a configuration file and fills in defaults. The problems are what it
// ignored.
func (f *Flags) read(path string) (*Configuration, []model.Problem, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, nil, err
	}
	c, problems, err := f.decode(data)
	if err != nil {
		return nil, nil, fmt.Errorf("configuration file %s: %w", path, err)
	}
	return c, problems, nil
}

// maxFileSize is more than any configuration needs.
const maxFileSize = 16 << 20

func readFile(path string) ([]byte, error) {
	data, err := regularfile.Read(path, maxFileSize)
	switch {
	case errors.Is(err, regularfile.ErrNotRegular), errors.Is(err, regularfile.ErrTooLarge):
		return nil, fmt.Errorf("--config %s: %w (put the configuration into a regular file)", path, err)
	case err != nil:
		return nil, fmt.Errorf("read the configuration file: %w", err)
	}
	return data, nil
}

// decode decodes a configuration in YAML or JSON, and fills in the defaults of the flags. The problems
// are what it ignored: unknown and duplicate fields.
func (f *Flags) decode(data []byte) (*Configuration, []model.Problem, error) {
	c, problems, err := decodeRaw(data)
	if err != nil {
		return nil, nil, err
	}
	setDefaults(c, f.ports())
	return c, problems, nil
}

// decodeRaw is decode without defaults.
func decodeRaw(data []byte) (*Configuration, []model.Problem, error) {
	// As upstream: what starts as JSON must be JSON.
	serializer, err := newSerializer(!utilyaml.IsJSONBuffer(data))
	if err != nil {
		return nil, nil, err
	}
	if isEmpty(data) {
		return nil, nil, ErrEmpty
	}
	object, gvk, err := serializer.Decode(data, nil, nil)
	var problems []model.Problem
	strict, ok := runtime.AsStrictDecodingError(err)
	switch {
	case ok:
		own := func(err error) bool { return err.Error() == fmt.Sprintf("unknown field %q", ownSection) }
		problems = ignored(slices.DeleteFunc(slices.Clone(strict.Errors()), own), data)
	case runtime.IsMissingKind(err), runtime.IsMissingVersion(err), runtime.IsNotRegisteredError(err):
		return nil, nil, wrongVersion(gvk)
	case err != nil:
		return nil, nil, unreadable(data, err)
	}
	c, ok := object.(*Configuration)
	if !ok {
		return nil, nil, wrongVersion(gvk)
	}
	_, misfits := readOwn(data)
	problems = append(problems, misfits...)
	if documents(data) > 1 {
		problems = append(problems, problem("", "there is more than one document in it; only the first is read",
			"put the configuration into a file of its own"))
	}
	return c, problems, nil
}

// Encode writes a configuration as YAML.
func Encode(c *Configuration) ([]byte, error) {
	serializer, err := newSerializer(true)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := serializer.Encode(c, &out); err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	return out.Bytes(), nil
}

// Write writes a configuration to a file.
func Write(path string, c *Configuration) error {
	data, err := Encode(c)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

func newSerializer(yaml bool) (*kjson.Serializer, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("set up the decoder: %w", err)
	}
	return kjson.NewSerializerWithOptions(kjson.DefaultMetaFactory, scheme, scheme,
		kjson.SerializerOptions{Yaml: yaml, Strict: true}), nil
}

// documents counts the YAML documents that are not empty.
func documents(data []byte) int {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	count := 0
	for {
		document, err := reader.Read()
		if err != nil {
			return count
		}
		if !isEmpty(document) {
			count++
		}
	}
}

// isEmpty reports whether there are only comments, as in a file that is being
// written.
func isEmpty(data []byte) bool {
	for line := range bytes.Lines(data) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && string(line) != "---" {
			return false
		}
	}
	return true
}

// wrongVersion says what is expected and what was found. The library's own errors
// contain the whole file.
func wrongVersion(gvk *schema.GroupVersionKind) error {
	if gvk == nil {
		return ErrVersion
	}
	version, kind := gvk.ToAPIVersionAndKind()
	return fmt.Errorf("%w; it has apiVersion %q and kind %q", ErrVersion, version, kind)
}

// remedyForField says what to do about a field that does not exist.
func remedyForField(field string) string {
	const remedy = "correct the name of the field, or remove it from the file"
	var paths, names []string
	byName := map[string]string{}
	for _, s := range settings {
		name := s.path[strings.LastIndexByte(s.path, '.')+1:]
		paths, names = append(paths, s.path), append(names, name)
		if byName[name] == "" || s.path < byName[name] {
			byName[name] = s.path
		}
	}
	meant := spelling.Nearest(field, paths)
	if meant == "" {
		meant = byName[spelling.Nearest(field[strings.LastIndexByte(field, '.')+1:], names)]
	}
	if meant == "" || meant == field { // it is there, but twice
		return remedy
	}
	return fmt.Sprintf("did you mean %s? Otherwise remove it from the file", meant)
}

// unreadable says why a file cannot be decoded: the fields with values of the wrong types,
// or the line that cannot be parsed.
func unreadable(data []byte, err error) error {
	raw, syntax := yaml.YAMLToJSON(data)
	if found := mistyped(data, raw); len(found) > 0 {
		return found
	}
	if syntax != nil && !utilyaml.IsJSONBuffer(data) {
		line, reason := yamlsyntax.Position(syntax)
		mistake := yamlsyntax.Explain(data, line, reason)
		return fmt.Errorf("it is not YAML: line %d: %s (%s)", mistake.Line, mistake.Reason, mistake.Remedy)
	}
	return fmt.Errorf("it cannot be read as YAML or JSON of a %s: %w", kind, err)
}

// mistyped returns the values of a file that have the wrong type, in the order of their lines. raw is
// the file in JSON, nil if it is neither that nor YAML.
func mistyped(data, raw []byte) (found Errors) {
	at := yamlsyntax.Locate(data)
	misfits := yamlsyntax.Misfits(raw, reflect.TypeFor[Configuration]())
	slices.SortStableFunc(misfits, func(a, b yamlsyntax.Misfit) int { return cmp.Compare(at.Line(a.Path), at.Line(b.Path)) })
	for _, m := range misfits {
		found = append(found, problem(m.Path, fmt.Sprintf("line %d: %s", at.Line(m.Path), m.Reason), m.Remedy))
	}
	return found
}

var quoted = regexp.MustCompile(`"([^"]+)"`)

// ignored turns the errors of a strict decoder into warnings that name the fields.
func ignored(errs []error, data []byte) []model.Problem {
	var problems []model.Problem
	fields := yamlsyntax.Locate(data)
	for _, path := range slices.Compact(slices.Sorted(slices.Values(fields.Repeated))) {
		problems = append(problems, problem(path, fmt.Sprintf("the field is there more than once; the one in line %d counts", fields.Line(path)), "keep one of them"))
	}
	for _, err := range errs {
		if len(fields.Repeated) > 0 && isRepetition(err) {
			continue
		}
		field := ""
		if found := quoted.FindStringSubmatch(err.Error()); found != nil {
			field = found[1]
		}
		problems = append(problems, problem(field, err.Error()+"; it is ignored", remedyForField(field)))
	}
	return problems
}

// isRepetition recognises what decoders of YAML and of JSON say of a field that is there
// more than once.
func isRepetition(err error) bool {
	return strings.Contains(err.Error(), "already set in map") || strings.HasPrefix(err.Error(), "duplicate field")
}
