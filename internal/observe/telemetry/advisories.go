package telemetry

// About is what an advisory is about.
type About string

// What advisories are about.
const (
	AboutConfiguration About = "configuration" // the configuration file is refused or partly ignored, or the flags are
	AboutRestart       About = "restart"       // a change of the configuration waits for a restart
	AboutNode          About = "node"          // the node is not as it must be: its name, its kernel, a second proxy
	AboutNetwork       About = "network"       // rules of others interfere with Services
)

// Abouts are all of them, in the order in which they are shown.
var Abouts = []About{AboutConfiguration, AboutRestart, AboutNode, AboutNetwork}

func (m *Metrics) setAdvisories(counts map[About]int) {
	for _, about := range Abouts {
		m.advisories.WithLabelValues(string(about)).Set(float64(counts[about]))
	}
}
