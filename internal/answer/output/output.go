// Package output writes the answers of commands, in words, as JSON or as YAML.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"sluice/internal/base/printable"
)

// Format is the format of an answer.
type Format struct{ name string }

const (
	asText = "text"
	asJSON = "json"
	asYAML = "yaml"
)

// AddFlags adds -o, and --json for short.
func (f *Format) AddFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.name = asText
	flags.VarP(f, "output", "o", "Format of the answer: text, json or yaml.")
	flags.BoolFunc("json", "The same as -o json.", func(on string) error {
		if on == "true" {
			f.name = asJSON
		}
		return nil
	})
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{asText, asJSON, asYAML}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// String, Set and Type are for pflag.Value.
func (f *Format) String() string { return f.name }
func (f *Format) Type() string   { return "format" }

func (f *Format) Set(name string) error {
	switch name {
	case asText, asJSON, asYAML:
		f.name = name
		return nil
	}
	return fmt.Errorf("it must be %s, %s or %s", asText, asJSON, asYAML)
}

// IsText reports whether the answer is to be in words.
func (f *Format) IsText() bool { return f.name == asText }

// Write writes a value, in words by a function. On a terminal, long lines are wrapped and
// verdicts have colours.
func (f *Format) Write(w io.Writer, value any, words func(io.Writer) error) error {
	switch f.name {
	case asJSON:
		return JSON(w, value)
	case asYAML:
		text, err := toYAML(value)
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		return nil
	}
	width := widthOf(w)
	if width == 0 {
		return words(w)
	}
	var text strings.Builder
	if err := words(&text); err != nil {
		return err
	}
	_, err := io.WriteString(w, forTerminal(text.String(), width, withColours()))
	return err
}

// WriteOne writes one of many values: a line of JSON, a document of YAML, or a text.
func (f *Format) WriteOne(w io.Writer, value any, text string) error {
	switch f.name {
	case asJSON:
		line, err := json.Marshal(value)
		if err != nil {
			return err
		}
		text = string(printable.EscapeJSON(line)) + "\n"
	case asYAML:
		document, err := toYAML(value)
		if err != nil {
			return err
		}
		text = "---\n" + string(document)
	}
	_, err := io.WriteString(w, text)
	return err
}

// Separator is what to write before each of several answers, which is text between those
// in words.
func (f *Format) Separator(text string) string {
	switch f.name {
	case asJSON:
		return ""
	case asYAML:
		return "---\n"
	}
	return text
}

// toYAML returns a value as YAML. Characters that are not printable must not reach a terminal;
// where YAML would have some, it is JSON, in which they are escaped and which is YAML as well.
func toYAML(value any) ([]byte, error) {
	text, err := toJSON(value)
	if err != nil {
		return nil, err
	}
	out, err := yaml.JSONToYAML(text)
	if plain := strings.ReplaceAll(string(out), "\n", ""); err == nil && printable.Escape(plain) == plain {
		return out, nil
	}
	return append(text, '\n'), err
}

func toJSON(value any) ([]byte, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return printable.EscapeJSON(text), err
}

// JSON writes a value as JSON for people to read. Characters that are not printable are escaped.
func JSON(w io.Writer, value any) error {
	text, err := toJSON(value)
	if err == nil {
		_, err = w.Write(append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
