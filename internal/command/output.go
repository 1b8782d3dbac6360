package command

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// output is the format of an answer: -o, or --json.
type output struct{ format string }

const (
	asText = "text"
	asJSON = "json"
	asYAML = "yaml"
)

func (o *output) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.format = asText
	flags.VarP(o, "output", "o", "Format of the answer: text, json or yaml.")
	flags.BoolFunc("json", "The same as -o json.", func(on string) error {
		if on == "true" {
			o.format = asJSON
		}
		return nil
	})
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{asText, asJSON, asYAML}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// String, Set and Type are for pflag.Value.
func (o *output) String() string { return o.format }
func (o *output) Type() string   { return "format" }

func (o *output) Set(format string) error {
	switch format {
	case asText, asJSON, asYAML:
		o.format = format
		return nil
	}
	return fmt.Errorf("it must be %s, %s or %s", asText, asJSON, asYAML)
}

// write writes a value, in words by a function.
func (o *output) write(w io.Writer, value any, words func(io.Writer) error) error {
	switch o.format {
	case asJSON:
		return writeJSON(w, value)
	case asYAML:
		text, err := yaml.Marshal(value)
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		return nil
	}
	return words(w)
}

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
