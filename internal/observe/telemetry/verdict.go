package telemetry

import "sluice/internal/observe/verdict"

func (m *Metrics) setVerdict(now verdict.ProxyWord) {
	for _, word := range verdict.ProxyWords {
		value := 0.0
		if word == now {
			value = 1
		}
		m.verdict.WithLabelValues(string(word)).Set(value)
	}
}
