package configtest

import (
	"cmp"
	"fmt"
	"strings"
)

// Setting is a field of the configuration, or a flag without one, and a value.
type Setting struct {
	Field string // its path in a file; empty if there is none
	Flag  string // without hyphens; empty if only a file has it
	Value string // as the flag takes it; $dir is the directory of the process
	Kind  Kind
}

// Kind is how a file has the value of a flag.
type Kind int

// Kinds of values.
const (
	Plain  Kind = iota // the same
	Text               // in quotes
	List               // with commas in between
	Levels             // of verbosity, by file
	Gate               // a feature gate's
)

// To returns the setting with another value.
func (s Setting) To(value string) Setting {
	s.Value = value
	return s
}

// Name returns the field or, if there is none, the flag.
func (s Setting) Name() string { return cmp.Or(s.Field, s.Flag) }

// Arg returns the setting as an argument of a command line.
func (s Setting) Arg() string {
	if s.Kind == Gate {
		return "--" + s.Flag + "=" + strings.TrimPrefix(s.Field, "featureGates.") + "=" + s.Value
	}
	return "--" + s.Flag + "=" + s.Value
}

// YAML returns the value as a file has it.
func (s Setting) YAML() string {
	switch s.Kind {
	case List:
		return list(s.Value, func(item string) string { return fmt.Sprintf("%q", item) })
	case Levels:
		return list(s.Value, func(item string) string {
			pattern, level, _ := strings.Cut(item, "=")
			return fmt.Sprintf("{filePattern: %q, verbosity: %s}", pattern, level)
		})
	}
	if s.Kind == Text || s.Value == "" {
		return fmt.Sprintf("%q", s.Value)
	}
	return s.Value
}

func list(items string, yaml func(string) string) string {
	var out []string
	for item := range strings.SplitSeq(items, ",") {
		out = append(out, yaml(item))
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// Header is how a configuration file starts.
const Header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// File returns a configuration file with those of the settings that have a field. Of two
// for the same field, the last counts.
func File(settings ...Setting) string {
	var members []member
	for _, s := range settings {
		if s.Field != "" {
			members = append(members, member{s.Field, s.YAML()})
		}
	}
	return Header + strings.Join(append(lines(members), ""), "\n")
}

// Line returns a field with its value, with a line of a file for it.
func Line(path, yaml string) string { return lines([]member{{path, yaml}})[0] }

// member is a field and its value in YAML.
type member struct{ path, value string }

// lines returns a line for each first word of the paths, with what it contains in braces.
func lines(members []member) (out []string) {
	for len(members) > 0 {
		var inside, others []member
		name, value := "", ""
		for _, m := range members {
			first, rest, nested := strings.Cut(m.path, ".")
			switch {
			case name != "" && first != name:
				others = append(others, m)
			case nested:
				name, inside = first, append(inside, member{rest, m.value})
			default:
				name, value = first, m.value
			}
		}
		if inside != nil {
			value = "{" + strings.Join(lines(inside), ", ") + "}"
		}
		out, members = append(out, name+": "+value), others
	}
	return out
}
