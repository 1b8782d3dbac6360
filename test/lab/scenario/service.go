//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// service is a plain Service that a script describes in one line.
type service struct {
	name  string
	kind  corev1.ServiceType
	ports []corev1.ServicePort
	// externalIPs and ingress are names of pairs of addresses.
	externalIPs, ingress           []string
	externalPolicy, internalPolicy string
	algorithm                      string
	endpoints                      []endpoint // nil if another step writes them
}

// serviceTypes are the types that the step can write.
var serviceTypes = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}

func parseService(p *parser, rest string) (action, error) {
	words := strings.Fields(rest)
	if len(words) < 3 {
		return nil, errors.New("want NAME TYPE PORTS [FIELD=VALUE...], such as web ClusterIP 80:8080/tcp endpoints=pod1")
	}
	s := &service{name: words[0], kind: corev1.ServiceType(words[1])}
	if !slices.Contains(serviceTypes, s.kind) {
		return nil, fmt.Errorf("unknown type %q: have %v", s.kind, serviceTypes)
	}
	if err := p.addresses(s.name); err != nil {
		return nil, err
	}
	options := slices.IndexFunc(words, func(w string) bool { return strings.Contains(w, "=") })
	if options < 0 {
		options = len(words)
	}
	if err := s.parsePorts(words[2:options]); err != nil {
		return nil, err
	}
	for _, word := range words[options:] {
		field, value, ok := strings.Cut(word, "=")
		if !ok || value == "" {
			return nil, fmt.Errorf("want FIELD=VALUE, not %q", word)
		}
		if err := s.set(p, field, value); err != nil {
			return nil, err
		}
	}
	if s.kind == corev1.ServiceTypeNodePort && s.ports[0].NodePort == 0 {
		return nil, errors.New("a NodePort Service needs nodePort=")
	}
	return s, nil
}

// addresses checks that names were given by let.
func (p *parser) addresses(names ...string) error {
	for _, name := range names {
		if !p.names[name] {
			return fmt.Errorf("%q has no addresses: give them by let", name)
		}
	}
	return nil
}

// parsePorts reads ports such as 80, 80:8080 or 53:5353/tcp,udp.
func (s *service) parsePorts(words []string) error {
	if len(words) == 0 {
		return errors.New("want a port, such as 80:8080/tcp")
	}
	for _, word := range words {
		numbers, list, chosen := strings.Cut(word, "/")
		port, target, mapped := strings.Cut(numbers, ":")
		if !mapped {
			target = port
		}
		from, err := parsePort(port)
		if err != nil {
			return err
		}
		to, err := parsePort(target)
		if err != nil {
			return err
		}
		protocols := []string{"tcp", "udp", "sctp"}
		if chosen {
			protocols = splitList(list)
		}
		for _, protocol := range protocols {
			if protocol != "tcp" && protocol != "udp" && protocol != "sctp" {
				return fmt.Errorf("%q is not a list of tcp, udp and sctp", list)
			}
			name := protocol
			if len(words) > 1 {
				name += "-" + port
			}
			s.ports = append(s.ports, corev1.ServicePort{
				Name: name, Protocol: corev1.Protocol(strings.ToUpper(protocol)), Port: from, TargetPort: intstr.FromInt32(to),
			})
		}
	}
	return nil
}

func parsePort(text string) (int32, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port", text)
	}
	return int32(n), nil
}

// set reads one field.
func (s *service) set(p *parser, field, value string) error {
	list := splitList(value)
	switch field {
	case "nodePort":
		return s.setNodePorts(list)
	case "externalIPs":
		s.externalIPs = list
		return p.addresses(list...)
	case "ingress":
		if s.kind != corev1.ServiceTypeLoadBalancer {
			return fmt.Errorf("a %s Service has no ingress", s.kind)
		}
		s.ingress = list
		return p.addresses(list...)
	case "externalTrafficPolicy", "internalTrafficPolicy":
		if value != "Local" && value != "Cluster" {
			return fmt.Errorf("%s is Cluster or Local, not %q", field, value)
		}
		if field == "externalTrafficPolicy" {
			s.externalPolicy = value
		} else {
			s.internalPolicy = value
		}
		return nil
	case "algorithm":
		s.algorithm = value
		return nil
	case "endpoints":
		if strings.Contains(value, "(") {
			return errors.New("endpoints with remarks need a step of their own")
		}
		var err error
		s.endpoints, err = parseEndpointList(list)
		return err
	}
	return fmt.Errorf("unknown field %q: write the Service as YAML", field)
}

// setNodePorts gives each port a node port, the same one for all its protocols.
func (s *service) setNodePorts(list []string) error {
	if s.kind == corev1.ServiceTypeClusterIP {
		return errors.New("a ClusterIP Service has no nodePort")
	}
	next, last := -1, int32(0)
	for i := range s.ports {
		if s.ports[i].Port != last {
			next, last = next+1, s.ports[i].Port
		}
		if next >= len(list) {
			break
		}
		port, err := parsePort(list[next])
		if err != nil {
			return err
		}
		s.ports[i].NodePort = port
	}
	if next+1 != len(list) {
		return fmt.Errorf("want a nodePort for each port, not %d", len(list))
	}
	return nil
}

// run writes the Service, and its EndpointSlices if the step has endpoints.
func (s *service) run(ctx context.Context, r *runner) error {
	svc := s.object(r.names)
	document, err := yaml.Marshal(svc)
	if err != nil {
		return err
	}
	files := map[string]string{s.name + ".yaml": string(document)}
	if s.endpoints != nil {
		if files[slicesFile(s.name)], err = makeSlices(svc, s.endpoints, r.lab); err != nil {
			return err
		}
	}
	return r.change(ctx, files, nil)
}

// object returns the Service with the addresses of the names.
func (s *service) object(names map[string][2]netip.Addr) *corev1.Service {
	var external []string
	for _, name := range s.externalIPs {
		external = append(external, names[name][0].String(), names[name][1].String())
	}
	var ingress []corev1.LoadBalancerIngress
	for _, name := range s.ingress {
		for _, addr := range names[name] {
			ingress = append(ingress, corev1.LoadBalancerIngress{IP: addr.String()})
		}
	}
	four, six := names[s.name][0].String(), names[s.name][1].String()
	svc := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.name},
		Spec: corev1.ServiceSpec{
			Type: s.kind, ClusterIP: four, ClusterIPs: []string{four, six},
			IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			ExternalIPs:           external,
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicy(s.externalPolicy),
			Ports:                 s.ports,
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}},
	}
	if s.algorithm != "" {
		svc.Annotations = map[string]string{"sluice/algorithm": s.algorithm}
	}
	if s.internalPolicy != "" {
		svc.Spec.InternalTrafficPolicy = (*corev1.ServiceInternalTrafficPolicy)(&s.internalPolicy)
	}
	return svc
}
