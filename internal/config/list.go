package config

// Fields lists the paths of all fields of the configuration, as a file has them.
func Fields() []string {
	paths := make([]string, len(settings))
	for i, s := range settings {
		paths[i] = s.path
	}
	return paths
}

// EffectiveGates lists the feature gates that do something here.
func EffectiveGates() []string { return gatesThatMatter() }
