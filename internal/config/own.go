package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"sluice/internal/kernel/sysctl"
	"sluice/internal/mode"
	"sluice/internal/model"
)

// ownSection is the field of a file with settings that upstream's kube-proxy does not have. That one names it in a
// warning, and ignores it, so that both can read the same file.
const ownSection = "sluice"

// ownFields maps fields of the section to flags.
var ownFields = map[string]string{
	"serviceProxyName":         flagServiceProxyName,
	"allServices":              flagAllServices,
	"externalIPRanges":         flagExternalIPRanges,
	"rejectLocalhostNodePorts": flagRejectLocalhost,
	"directReturn":             flagDirectReturn,
	"ejectFailingEndpoints":    "eject-failing-endpoints",
	"resetRemovedEndpoints":    "reset-removed-endpoints",
	ownFlowTable:               flagFlowTable,
}

// liveOwn are those of them that a running proxy changes.
var liveOwn = map[string]bool{ownFlowTable: true}

// restartOwn is why a change of them waits.
const restartOwn = "the settings of its own are read when the proxy starts"

// readOwn returns the values of the section, by field, and what is wrong with it.
func readOwn(data []byte) (map[string]string, []model.Problem) {
	var file map[string]any
	if err := yaml.Unmarshal(data, &file); err != nil || file[ownSection] == nil {
		return nil, nil // the rest of the file has its own reader
	}
	section, ok := file[ownSection].(map[string]any)
	if !ok {
		return nil, []model.Problem{problem(ownSection, "it has no fields", "write the fields below it, indented, such as ejectFailingEndpoints: true")}
	}
	values, problems := map[string]string{}, []model.Problem(nil)
	for _, name := range slices.Sorted(maps.Keys(section)) {
		if ownFields[name] == "" {
			problems = append(problems, problem(ownSection+"."+name, "the field is not known; it is ignored",
				"use one of "+strings.Join(slices.Sorted(maps.Keys(ownFields)), ", ")))
			continue
		}
		if section[name] != nil { // as of other fields, null is the default
			values[name] = ownText(section[name])
		}
	}
	return values, problems
}

// ownText returns a value as it is written for a flag.
func ownText(value any) string {
	list, ok := value.([]any)
	if !ok {
		return fmt.Sprint(value)
	}
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = fmt.Sprint(list[i])
	}
	return strings.Join(texts, ",")
}

// TakeOwn sets the flags that upstream's kube-proxy does not have to what the file says, unless the command line sets
// them. Load does so too; who needs the flags before calls it. A file that cannot be read is for Load to report.
func (f *Flags) TakeOwn() error {
	if f.ConfigFile == "" || f.ownTaken {
		return nil
	}
	data, err := readFile(f.ConfigFile)
	if err != nil {
		return nil
	}
	f.ownTaken, f.ownValues = true, f.ownOf(data)
	var errs Errors
	for _, name := range slices.Sorted(maps.Keys(f.ownValues)) {
		flag := f.set.Lookup(ownFields[name])
		if flag == nil { // the command does not need it
			continue
		}
		if err := setOwn(flag, f.ownValues[name]); err != nil {
			errs = append(errs, wrongOwn(name, f.ownValues[name]))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("configuration file %s: %w", f.ConfigFile, errs)
	}
	return nil
}

// withOwn returns the flags as they would be with these values of a file.
func (f *Flags) withOwn(values map[string]string) (*Flags, error) {
	later, set := *f, pflag.NewFlagSet("", pflag.ContinueOnError)
	later.AddOwn(set) // which sets them to their defaults
	later.ServiceMetrics = f.ServiceMetrics
	var errs Errors
	for _, name := range slices.Sorted(maps.Keys(ownFields)) {
		given, flag := f.set.Lookup(ownFields[name]), set.Lookup(ownFields[name])
		value, isSet := values[name]
		var err error
		switch {
		case flag == nil: // of the command: a bool
			_, err = strconv.ParseBool(cmp.Or(value, "false"))
		case isSet:
			err = setOwn(flag, value)
		case given != nil && given.Changed:
			err = copyFlag(flag, given)
		}
		if err != nil {
			errs = append(errs, wrongOwn(name, value))
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return &later, nil
}

func wrongOwn(name, value string) model.Problem {
	return problem(ownSection+"."+name, fmt.Sprintf("%q is not a value for it", value), "use a value that --"+ownFields[name]+" accepts")
}

func copyFlag(to, from *pflag.Flag) error {
	if list, ok := from.Value.(pflag.SliceValue); ok {
		return to.Value.(pflag.SliceValue).Replace(list.GetSlice())
	}
	return to.Value.Set(from.Value.String())
}

func setOwn(flag *pflag.Flag, value string) error {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return list.Replace(slices.DeleteFunc(strings.Split(value, ","), func(s string) bool { return s == "" }))
	}
	return flag.Value.Set(value)
}

// ownOf returns the values of a file that the command line does not set.
func (f *Flags) ownOf(data []byte) map[string]string {
	values, _ := readOwn(data)
	maps.DeleteFunc(values, func(name, _ string) bool { return f.set.Changed(ownFields[name]) })
	return values
}

// holdOwn returns the values in force, updated with those that can change in a running process.
func holdOwn(inForce, asked map[string]string) map[string]string {
	held := map[string]string{}
	for name := range ownFields {
		from := inForce
		if liveOwn[name] {
			from = asked
		}
		if value, set := from[name]; set {
			held[name] = value
		}
	}
	return held
}

// compareOwn returns the settings of its own in which a file differs from that of the start.
func compareOwn(old, later *Settings) (changes []Change) {
	text := func(values map[string]string, name string) string {
		if value, set := values[name]; set {
			return value
		}
		return "the default"
	}
	for _, name := range slices.Sorted(maps.Keys(ownFields)) {
		restart := restartOwn
		if liveOwn[name] {
			restart = ""
		}
		changes = append(changes, Change{Field: ownSection + "." + name, Restart: restart,
			Old: text(old.Own, name), New: text(later.Own, name)})
	}
	return changes
}

// The ports of a proxy that serves only labelled Services, beside one with the usual ports.
const (
	namedHealthPort  = 10266
	namedMetricsPort = 10269
)

// beside reports whether the proxy serves labelled Services only: another one serves the others.
func (f *Flags) beside() bool { return f.ServiceProxyName != "" && !f.AllServices }

// ports are those of the servers where none are set.
func (f *Flags) ports() servers {
	if f.beside() {
		return servers{namedHealthPort, namedMetricsPort}
	}
	return usualPorts
}

func (f *Flags) name(s *Settings, n *notes) {
	s.ServiceProxyName, s.AllServices = f.ServiceProxyName, f.AllServices
	if f.AllServices && f.ServiceProxyName == "" {
		n.fail("", "--all-services says nothing without --service-proxy-name", "leave it out: all Services without the label are served")
	}
	if f.ServiceProxyName != "" {
		for _, why := range validation.IsValidLabelValue(f.ServiceProxyName) {
			n.fail("", fmt.Sprintf("--service-proxy-name: no Service can be labelled %q: %s", f.ServiceProxyName, why),
				"use the value that the label service.kubernetes.io/service-proxy-name of your Services has, such as sluice")
		}
	}
	if f.beside() {
		if !s.Mode.Named {
			n.fail(modePath, fmt.Sprintf("--service-proxy-name: in %s mode a proxy cannot serve a node beside another one, because what it makes in the kernel has the names of upstream's", s.Mode.Name),
				"set --proxy-mode to "+strings.Join(namedModes(), " or "))
		}
		s.Instance = f.ServiceProxyName
		s.Conntrack = sysctl.Conntrack{} // the node's settings are the other proxy's
	}
}

// namedModes are the modes in which a proxy can serve a node beside others.
func namedModes() (names []string) {
	for _, m := range mode.All {
		if m.Named {
			names = append(names, m.Name)
		}
	}
	return names
}
