package proxy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sluice/internal/config"
	"sluice/internal/engine"
	"sluice/internal/model"
	"sluice/internal/observe/telemetry"
)

// advisoriesByTopic returns what the administrator should know and can mend, by what
// it is about.
func (p *proxy) advisoriesByTopic() map[telemetry.Topic][]model.Problem {
	file := p.configFile.Load()
	out := p.foundAdvisories()
	out[telemetry.TopicConfiguration] = append(file.Advisories(), out[telemetry.TopicConfiguration]...)
	out[telemetry.TopicRestart] = file.Waiting()
	return out
}

// foundAdvisories are those that are found out while the proxy runs, in contrast to those that
// its configuration file says itself.
func (p *proxy) foundAdvisories() map[telemetry.Topic][]model.Problem {
	settings, rules := p.hostSetup.advisories()
	out := map[telemetry.Topic][]model.Problem{telemetry.TopicNetwork: rules}
	if p.client == nil {
		out[telemetry.TopicConfiguration] = unusedAPIServer(p.settings)
	}
	out[telemetry.TopicConfiguration] = append(out[telemetry.TopicConfiguration], idleEjection(p.settings)...)
	cfg, second := &p.servers.settings.Load().Plan, p.secondProxy()
	p.engine.Inspect(func(v engine.View) {
		node, configuration := p.fit.Look(cfg, v.State, v.Version)
		out[telemetry.TopicNode] = slices.Concat(node, settings, second)
		out[telemetry.TopicNetwork] = append(out[telemetry.TopicNetwork], unusedNodes(v.Desired.Settings.DirectReturn)...)
		out[telemetry.TopicConfiguration] = append(out[telemetry.TopicConfiguration], configuration...)
	})
	return out
}

// secondProxy returns that another proxy waits for this one to end.
func (p *proxy) secondProxy() []model.Problem {
	who, since, waits := p.lock.Waiter()
	if !waits {
		return nil
	}
	return []model.Problem{{
		Object: model.Object{Kind: "Second kube-proxy"},
		Reason: fmt.Sprintf("%s has waited since %s for this one to end, and does nothing", who, since.UTC().Format("15:04:05 UTC")),
		Remedy: "end one of the two: only one kube-proxy can serve a node",
	}}
}

// advisoryEvery is how often advisories are looked for.
const advisoryEvery = 2 * time.Second

// followAdvisories looks for advisories until ctx ends, and logs each of them once when it
// begins, with an Event on the Node if that is the cause, and once when it ends. Those that the configuration file says are logged by who reads it.
func (p *proxy) followAdvisories(ctx context.Context) error {
	type key struct {
		object model.Object
		field  string
	} // reasons have numbers in them that change
	known := map[key]model.Problem{}
	log := p.logger.WithName("node")
	for {
		p.hostSetup.look(ctx)
		now := map[key]bool{}
		found := p.foundAdvisories()
		for _, topic := range telemetry.Topics {
			for _, problem := range found[topic] {
				k := key{problem.Object, problem.Field}
				now[k] = true
				if _, before := known[k]; before {
					continue
				}
				known[k] = problem
				log.Error(nil, "Warning: "+problem.String())
				switch node := p.settings.Plan.NodeName; topic {
				case telemetry.TopicNetwork:
					p.recorder.Record(telemetry.IPTablesConflict(node, problem))
				case telemetry.TopicNode:
					p.recorder.Record(telemetry.NodeProblem(node, problem))
				}
			}
		}
		for k, problem := range known {
			if !now[k] {
				delete(known, k)
				log.Info("This warning no longer holds", "warning", problem.Object.String()+": "+problem.What())
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.clock.After(advisoryEvery):
		}
	}
}

// advisories returns all of them, in a stable order.
func (p *proxy) advisories() (all []model.Problem) {
	byTopic := p.advisoriesByTopic()
	for _, topic := range telemetry.Topics {
		all = append(all, byTopic[topic]...)
	}
	return all
}

// decisiveAdvisories are those that bear on what happens to packets: the answers of
// explain would be others without them.
func (p *proxy) decisiveAdvisories() []model.Problem {
	byTopic := p.advisoriesByTopic()
	all := slices.Concat(byTopic[telemetry.TopicConfiguration], byTopic[telemetry.TopicRestart], byTopic[telemetry.TopicNode], byTopic[telemetry.TopicNetwork])
	p.engine.Inspect(func(v engine.View) {
		all = append(all, v.Desired.Problems[model.NodeObject(p.settings.Plan.NodeName)]...)
	})
	return all
}

func (p *proxy) countAdvisories() map[telemetry.Topic]int {
	counts := map[telemetry.Topic]int{}
	for topic, list := range p.advisoriesByTopic() {
		counts[topic] = len(list)
	}
	return counts
}

// unusedAPIServer returns that a configured API server is not used, because there are
// manifests.
func unusedAPIServer(s *config.Settings) []model.Problem {
	field, value := "clientConnection.kubeconfig", s.Client.Connection.Kubeconfig
	if value == "" {
		field, value = "--master", s.Client.Master
	}
	if value == "" {
		return nil
	}
	return []model.Problem{{
		Object: model.Object{Kind: "API server"}, Field: field,
		Reason: fmt.Sprintf("%s is not used: with --manifests, the proxy follows no API server", value),
		Remedy: "leave out --manifests to follow the API server, or the kubeconfig to follow the manifests",
	}}
}

// idleEjection returns that a flag asks for what the mode cannot do.
func idleEjection(s *config.Settings) []model.Problem {
	if !s.Plan.Eject || s.Plan.CanEject {
		return nil
	}
	return []model.Problem{{
		Object: model.Object{Kind: "Endpoints that do not answer"}, Field: "--eject-failing-endpoints",
		Reason: fmt.Sprintf("it has no effect: proxy mode %s does not notice which endpoints do not answer", s.Mode.Name),
		Remedy: "leave the flag out, or choose another proxy mode",
	}}
}
