package telemetry

// Topic is what an advisory is about.
type Topic string

// What advisories are about.
const (
	TopicConfiguration Topic = "configuration" // the configuration file is refused or partly ignored, or the flags are
	TopicRestart       Topic = "restart"       // a change of the configuration waits for a restart
	TopicNode          Topic = "node"          // the node is not as it must be: its name, its kernel, a second proxy
	TopicNetwork       Topic = "network"       // rules of others interfere with Services
)

// Topics are all of them, in the order in which they are shown.
var Topics = []Topic{TopicConfiguration, TopicRestart, TopicNode, TopicNetwork}

func (m *Metrics) setAdvisories(counts map[Topic]int) {
	for _, topic := range Topics {
		m.advisories.WithLabelValues(string(topic)).Set(float64(counts[topic]))
	}
}
