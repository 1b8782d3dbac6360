package config

import (
	"maps"

	"sluice/internal/model"
)

// Update is what another configuration file asks of a running proxy.
type Update struct {
	// Asked is what the file says, and what a new process would go by.
	Asked *Settings
	// InForce is what holds as long as this process runs: the file, but fields
	// that need a new process keep their values. So do the defaults that follow
	// from the mode, for those of another mode are not meant for this one.
	InForce *Settings
	// Live are the changes that InForce brings, and Restart those that wait.
	Live, Restart []Change
	// Blocked is why nothing of the file can be put into force by this process,
	// nil if that is not so. InForce is then what it was.
	Blocked error
}

// Update works out what a configuration file of that content asks of a proxy
// that runs with the settings in force.
func (f *Flags) Update(file []byte, inForce *Settings) (*Update, error) {
	asked, err := f.SettingsWith(file)
	if err != nil {
		return nil, err
	}
	asked.takeNode(inForce)
	u := &Update{Asked: asked, InForce: inForce}
	_, u.Restart = Compare(inForce, asked)
	held, err := f.resolve(f.hold(file, inForce))
	if err != nil { // sound in the mode that the file asks for, but not in this one
		u.Blocked = err
		return u, nil
	}
	held.takeNode(inForce)
	held.WrittenMode = inForce.WrittenMode
	u.InForce = held
	u.Live, _ = Compare(inForce, held)
	return u, nil
}

// takeNode takes over what follows from the node, not from a configuration.
func (s *Settings) takeNode(from *Settings) {
	to, now := &s.Plan, &from.Plan
	to.NodeName, to.RequireNode, to.NoIPv6 = now.NodeName, now.RequireNode, now.NoIPv6
}

// hold reads a configuration file and leaves what needs a new process as it is
// in force. The mode comes first, because defaults follow from it.
func (f *Flags) hold(file []byte, inForce *Settings) (*Configuration, []model.Problem, error) {
	c, problems, err := decodeRaw(file)
	if err != nil {
		return nil, nil, err
	}
	c.Mode = inForce.WrittenMode
	setDefaults(c)
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

// holdGates are the feature gates in force, but for those that can change in a
// running process.
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
