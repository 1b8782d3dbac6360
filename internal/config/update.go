package config

import (
	"maps"

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
