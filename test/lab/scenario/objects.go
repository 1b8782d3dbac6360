//go:build linux

package scenario

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"sluice/test/lab"
)

// nodeFile is the file of the Node object that every script has.
const nodeFile = "node1.yaml"

const nodeManifest = `apiVersion: v1
kind: Node
metadata:
  name: node1
  labels: {topology.kubernetes.io/zone: a}
spec:
  podCIDRs: [10.244.1.0/24, "fd00:10:244:1::/64"]
status:
  addresses:
  - {type: Hostname, address: node1}
  - {type: InternalIP, address: 192.0.2.10}
  - {type: InternalIP, address: "2001:db8::10"}
`

// endpoint is one that a script gives to a Service.
type endpoint struct {
	host       string
	conditions discoveryv1.EndpointConditions
	hints      *discoveryv1.EndpointHints
	weight     string // of its EndpointSlice, "" for none
}

// parseEndpoint reads "pod1(terminating,zone=a)".
func parseEndpoint(text string) (endpoint, error) {
	name, remarks, marked := strings.Cut(text, "(")
	if marked && !strings.HasSuffix(remarks, ")") {
		return endpoint{}, fmt.Errorf("endpoint %q has no closing parenthesis", text)
	}
	yes, no := true, false
	e := endpoint{host: name, conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}}
	for _, remark := range splitList(strings.TrimSuffix(remarks, ")")) {
		key, value, _ := strings.Cut(remark, "=")
		switch key {
		case "notready":
			e.conditions.Ready, e.conditions.Serving = &no, &no
		case "terminating":
			e.conditions.Ready, e.conditions.Terminating = &no, &yes
		case "notserving":
			e.conditions.Serving = &no
		case "zone", "node":
			e.hint(key, value)
		case "weight":
			e.weight = value
		default:
			return endpoint{}, fmt.Errorf("unknown remark %q on endpoint %s", remark, name)
		}
	}
	return e, nil
}

// parseEndpointList reads endpoints that are hosts of the lab.
func parseEndpointList(words []string) ([]endpoint, error) {
	list := make([]endpoint, len(words))
	for i, word := range words {
		var err error
		if list[i], err = parseEndpoint(word); err != nil {
			return nil, err
		}
		if !knownHost(list[i].host) {
			return nil, fmt.Errorf("the lab has no host %q", list[i].host)
		}
	}
	return list, nil
}

// slicesFile names the file with the EndpointSlices of a Service.
func slicesFile(service string) string { return "endpoints-" + service + ".yaml" }

func (e *endpoint) hint(key, value string) {
	if e.hints == nil {
		e.hints = &discoveryv1.EndpointHints{}
	}
	if key == "zone" {
		e.hints.ForZones = append(e.hints.ForZones, discoveryv1.ForZone{Name: value})
	} else {
		e.hints.ForNodes = append(e.hints.ForNodes, discoveryv1.ForNode{Name: value})
	}
}

var documentEnd = regexp.MustCompile(`(?m)^---\s*$`)

// findService looks for a Service in YAML documents.
func findService(files map[string]string, name string) (*corev1.Service, error) {
	for file, content := range files {
		for _, document := range documentEnd.Split(content, -1) {
			var svc corev1.Service
			// Of other kinds only the kind matters.
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil || kind.Kind != "Service" {
				continue
			}
			if err := yaml.Unmarshal([]byte(document), &svc); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if svc.Name == name {
				return &svc, nil
			}
		}
	}
	return nil, fmt.Errorf("no Service %q is applied", name)
}

// makeSlices makes the EndpointSlices that the controller would make, one for each
// family, with the target ports of the Service. Endpoints with weights are in slices
// of their own.
func makeSlices(svc *corev1.Service, endpoints []endpoint, l *lab.Lab) (string, error) {
	var ports []discoveryv1.EndpointPort
	for _, p := range svc.Spec.Ports {
		target := p.TargetPort.IntVal
		if target == 0 {
			target = p.Port
		}
		ports = append(ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &target})
	}
	weights := []string{""}
	for _, e := range endpoints {
		if !slices.Contains(weights, e.weight) {
			weights = append(weights, e.weight)
		}
	}
	var documents []string
	for family, kind := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		for i, weight := range weights {
			slice, err := makeSlice(svc, kind, weight, endpoints, family, l)
			if err != nil {
				return "", err
			}
			slice.Ports = ports
			if i > 0 {
				slice.Name += fmt.Sprint("-", i)
			}
			document, err := yaml.Marshal(slice)
			if err != nil {
				return "", errors.Join(errors.New("write EndpointSlice"), err)
			}
			documents = append(documents, string(document))
		}
	}
	return strings.Join(documents, "---\n"), nil
}

// makeSlice makes the slice with the endpoints of a family and weight.
func makeSlice(svc *corev1.Service, kind discoveryv1.AddressType, weight string, endpoints []endpoint, family int, l *lab.Lab) (*discoveryv1.EndpointSlice, error) {
	slice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace,
			Name:      svc.Name + "-" + strings.ToLower(string(kind)),
			Labels:    map[string]string{discoveryv1.LabelServiceName: svc.Name},
		},
		AddressType: kind,
		Endpoints:   []discoveryv1.Endpoint{},
	}
	if weight != "" {
		slice.Annotations = map[string]string{"sluice/weight": weight}
	}
	for _, e := range endpoints {
		if e.weight != weight {
			continue
		}
		host, err := l.Host(e.host)
		if err != nil {
			return nil, err
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{host.Addrs[family].String()},
			NodeName:   &host.Node,
			Conditions: e.conditions,
			Hints:      e.hints,
		})
	}
	return slice, nil
}
