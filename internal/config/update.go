package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/component-base/featuregate"

	"sluice/internal/dataplane"
	"sluice/internal/model"
)

// Update is what a new configuration file means for a running proxy.
type Update struct {
	// Asked is what the file says, and what a new process would use.
	Asked *Settings
	// InForce is what applies as long as this process runs: the file, except for
	// fields that need a restart, which keep their values. So do defaults that depend
	// on the mode.
	InForce *Settings
	// Live are the changes that InForce makes, and Restart those that wait.
	Live, Restart []Change
	// Blocked is why this process can apply nothing of the file, nil if it can.
	// InForce is then unchanged.
	Blocked error
}

// Update computes what a configuration file of that content means for a proxy that
// runs with the settings in force.
func (f *Flags) Update(file []byte, inForce *Settings) (*Update, error) {
	asked, err := f.SettingsWith(file)
	if err != nil {
		return nil, err
	}
	asked.takeNode(inForce)
	u := &Update{Asked: asked, InForce: inForce}
	_, u.Restart = Compare(inForce, asked)
	c, problems, err := f.hold(file, inForce)
	held, err := f.resolve(c, problems, err, asked.Own, true)
	if err != nil { // sound in the mode that the file asks for, but not in this one
		u.Blocked = err
		return u, nil
	}
	held.takeNode(inForce)
	held.Own = holdOwn(inForce.Own, asked.Own)
	held.WrittenMode = inForce.WrittenMode
	u.InForce = held
	u.Live, _ = Compare(inForce, held)
	return u, nil
}

// takeNode copies what depends on the node and the command, not on a configuration.
func (s *Settings) takeNode(from *Settings) {
	to, now := &s.Plan, &from.Plan
	to.NodeName, to.RequireNode, to.NoIPv6, to.Eject = now.NodeName, now.RequireNode, now.NoIPv6, now.Eject
}

// hold reads a configuration file and keeps what needs a restart as it is in force.
// The mode comes first, because defaults depend on it.
func (f *Flags) hold(file []byte, inForce *Settings) (*Configuration, []model.Problem, error) {
	c, problems, err := decodeRaw(file)
	if err != nil {
		return nil, nil, err
	}
	c.Mode = inForce.WrittenMode
	setDefaults(c, f.ports())
	if c, problems, err = f.with(c, problems, nil); err != nil {
		return nil, nil, err
	}
	for _, s := range settings {
		if s.restart != "" && s.path != modePath {
			at(c, s.path).Set(at(inForce.Configuration, s.path))
		}
	}
	c.FeatureGates = holdGates(inForce.Configuration.FeatureGates, c.FeatureGates)
	return c, problems, nil
}

// holdGates returns the feature gates in force, updated with those that can change
// in a running process.
func holdGates(inForce, asked map[string]bool) map[string]bool {
	held := maps.Clone(inForce)
	for name, restart := range effectiveGates {
		if restart != "" {
			continue
		}
		delete(held, string(name))
		if value, set := asked[string(name)]; set {
			held[string(name)] = value
		}
	}
	return held
}

// Change is a field that differs between two configurations.
type Change struct {
	Field    string
	Old, New string // as JSON
	Restart  string // why it needs a new process, if it does
}

func (c Change) String() string {
	s := fmt.Sprintf("%s: %s is now %s", c.Field, c.Old, c.New)
	if c.Restart != "" {
		s += " (" + c.Restart + ")"
	}
	return s
}

// Compare returns the fields in which the later settings differ: those that can
// change in the running process, and those that need a restart. A field without
// effect is in neither.
func Compare(old, later *Settings) (live, restart []Change) {
	changes := append(compareGates(old, later), compareOwn(old, later)...)
	for _, s := range settings {
		if s.path == "featureGates" || s.idle(old.Mode) != "" && s.idle(later.Mode) != "" {
			continue
		}
		change := Change{
			Field: s.path, Restart: s.restart,
			Old: text(at(old.Configuration, s.path)), New: text(at(later.Configuration, s.path)),
		}
		changes = append(changes, change)
	}
	for _, change := range changes {
		switch {
		case change.Old == change.New:
		case change.Restart != "":
			restart = append(restart, change)
		default:
			live = append(live, change)
		}
	}
	return live, restart
}

func compareGates(old, later *Settings) []Change {
	var changes []Change
	for _, name := range slices.Sorted(maps.Keys(effectiveGates)) {
		changes = append(changes, Change{
			Field: "featureGates." + string(name), Restart: effectiveGates[name],
			Old: gateText(old, name), New: gateText(later, name),
		})
	}
	return changes
}

func gateText(s *Settings, name featuregate.Feature) string {
	return fmt.Sprint(s.Features.Enabled(name))
}

// idle returns why a field has no effect in a mode, "" if it has one.
func (s setting) idle(m dataplane.Mode) string {
	section, _, _ := strings.Cut(s.path, ".")
	if isModeSection(section) && !uses(m, s.path) {
		return fmt.Sprintf("it is for proxy mode %s, and the mode is %s", section, m.Name)
	}
	if s.path == portRangePath && !m.Configuration.PortRange {
		return unusedPortRange
	}
	if without(m, s.path) {
		return fmt.Sprintf("mode %s cannot do it", m.Name)
	}
	if readsAlso(m, section) || s.path == servicePath && hasServices {
		return ""
	}
	return s.unused
}

// uses reports whether a mode reads a field of a section for modes.
func uses(m dataplane.Mode, path string) bool {
	section, field, _ := strings.Cut(path, ".")
	if strings.HasPrefix(field, "masquerade") {
		return section == m.Configuration.MasqueradeSection
	}
	return section == m.Configuration.Section
}

// isModeSection reports whether a section belongs to one mode: only those have a
// syncPeriod.
func isModeSection(section string) bool {
	return slices.ContainsFunc(settings, func(s setting) bool { return s.path == section+".syncPeriod" })
}

// twin returns the field of another mode that the same flag sets, "" for none.
func (s setting) twin() string {
	if len(s.also) > 0 {
		return s.also[0]
	}
	for _, other := range settings {
		if slices.Contains(other.also, s.path) {
			return other.path
		}
	}
	return ""
}

// noteUnused notes the fields that were set and have no effect.
func noteUnused(c *Configuration, m dataplane.Mode, n *notes) {
	defaults := New()
	for _, s := range settings {
		why, value := s.idle(m), text(at(c, s.path))
		if why == "" || value == text(at(defaults, s.path)) {
			continue
		}
		// A flag that sets this field also sets one that has an effect.
		if twin := s.twin(); twin != "" && value == text(at(c, twin)) {
			continue
		}
		n.note(s.path, "it has no effect: "+why, "leave it out")
	}
}
