package source

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"sluice/internal/model"
)

// LabelServiceProxyName is the label of a Service that says which proxy serves it, if that is
// not the one that serves all others.
const LabelServiceProxyName = "service.kubernetes.io/service-proxy-name"

// Proxy is the proxy that objects are read for.
type Proxy struct {
	// NodeName is the Node of the proxy, and the one that matters, unless AllNodes: then the addresses of all
	// others do too.
	NodeName string
	AllNodes bool
	// ServiceProxyName is what the label LabelServiceProxyName of Services must be. If it is empty,
	// only Services without the label are served.
	ServiceProxyName string
	// AllServices serves Services without the label, too.
	AllServices bool
}

// Beside reports whether the proxy serves only labelled Services: another one, or several, serve
// the others.
func (p Proxy) Beside() bool { return p.ServiceProxyName != "" && !p.AllServices }

// serves reports whether a Service that needs a proxy is for this one.
func (p Proxy) serves(svc *v1.Service) bool {
	name, labelled := svc.Labels[LabelServiceProxyName]
	if !labelled {
		return !p.Beside()
	}
	return p.ServiceProxyName != "" && name == p.ServiceProxyName
}

// service returns the event for a Service, none if it needs no proxy, or never had this one. A
// proxy with a name is told of those of others, too: one of its own may have become theirs.
func (p Proxy) service(svc *v1.Service) []model.Event {
	switch service, ok := p.Service(svc); {
	case ok:
		return []model.Event{model.SetService{Service: service}}
	case p.ServiceProxyName != "" && needsProxy(svc):
		return []model.Event{model.ReleaseService{Name: nameOf(svc)}}
	}
	return nil
}

func nameOf(svc *v1.Service) model.Name {
	return model.Name{Namespace: intern(svc.Namespace), Name: svc.Name}
}

// Served says which Services are served, in words; empty for those without the label.
func (p Proxy) Served() string {
	switch {
	case p.ServiceProxyName == "":
		return ""
	case p.AllServices:
		return fmt.Sprintf("Services without the label %s, and those labelled %s", LabelServiceProxyName, p.ServiceProxyName)
	}
	return fmt.Sprintf("only Services labelled %s=%s", LabelServiceProxyName, p.ServiceProxyName)
}

// NotServed says which label makes a Service one of another proxy.
func (p Proxy) NotServed() string {
	switch {
	case p.ServiceProxyName == "":
		return "labelled " + LabelServiceProxyName
	case p.AllServices:
		return fmt.Sprintf("labelled %s with another value than %s", LabelServiceProxyName, p.ServiceProxyName)
	}
	return fmt.Sprintf("not labelled %s=%s", LabelServiceProxyName, p.ServiceProxyName)
}
