package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/model"
)

// ErrQuestion is the error of a question that cannot be parsed.
var ErrQuestion = errors.New("cannot parse the question")

// Question is a question as people write it.
type Question struct {
	// To is a Service as namespace/name or svc/name, which is in namespace default, its
	// name alone, if only one namespace has it, or its DNS name; an IP; a URL; or a node
	// port. All but the last two may be followed by :port or :port/protocol.
	To string `json:"to"`
	// From is an IP, with a port or without, or one of the words pod, node and outside; pod if empty.
	From string `json:"from,omitempty"`
	// Interface is what the packet arrives through. If it is empty and pods are
	// recognised by their interface, it is the one that leads to From.
	Interface string `json:"interface,omitempty"`
	// Try asks for a connection: from the network namespace NetNS if that is not empty, and
	// otherwise from that which has the address of From, or from the node if From is empty.
	Try   bool   `json:"try,omitempty"`
	NetNS string `json:"netns,omitempty"`
}

// target is the destination of a question.
type target struct {
	service model.Name     // if it is asked by name; without a namespace, of any
	port    string         // of the service: name or number, "" for all; of a node port alone, its number
	key     netip.AddrPort // port 0 for all
	proto   model.Protocol // 0 if the question has none
}

func badQuestion(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrQuestion, fmt.Errorf(format, args...))
}

// parseTarget parses what people have at hand: namespace/name, svc/name, a DNS name, an
// IP, each with a port or without, or a URL.
func parseTarget(s string) (target, error) {
	text := strings.TrimSpace(s)
	if text == "" {
		return target{}, badQuestion("name one thing to explain, such as default/web or 10.96.0.1:80")
	}
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		return parseURL(s, scheme, rest)
	}
	rest, proto, err := cutProtocol(text)
	if err != nil {
		return target{}, err
	}
	t, err := parseDestination(s, rest)
	t.proto = proto
	return t, err
}

var schemePorts = map[string]uint16{"http": 80, "https": 443}

// parseURL parses the host of a URL, with the port of its scheme if it has none.
func parseURL(s, scheme, rest string) (target, error) {
	host, _, _ := strings.Cut(rest, "/")
	host, _, _ = strings.Cut(host, "?")
	host = host[strings.LastIndex(host, "@")+1:]
	t, err := parseDestination(s, host)
	if err != nil {
		return t, err
	}
	if port, known := schemePorts[strings.ToLower(scheme)]; known && t.service.Name != "" && t.port == "" {
		t.port = strconv.Itoa(int(port))
	} else if known && t.service.Name == "" && t.key.Port() == 0 {
		t.key = netip.AddrPortFrom(t.key.Addr(), port)
	}
	t.proto = protocolOf(scheme)
	return t, nil
}

// parseDestination parses a target without a protocol.
func parseDestination(s, text string) (target, error) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		if at.Port() == 0 {
			return target{}, badQuestion("%q has port 0: use one from 1 to 65535", s)
		}
		return target{key: netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())}, nil
	}
	if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return target{key: netip.AddrPortFrom(ip.Unmap().WithZone(""), 0)}, nil // all its ports
	}
	if port := strings.TrimPrefix(text, ":"); portOf(port) != 0 {
		return target{port: port}, nil
	}
	name, port, colon := cutPort(text)
	if colon && port == "" {
		return target{}, badQuestion("%q has a colon and no port: ask for %s or %s:80", s, name, name)
	}
	namespace, service, found := strings.Cut(name, "/")
	switch {
	case !isName(strings.ReplaceAll(name, "/", "")) || strings.Count(name, "/") > 1 || found && (namespace == "" || service == ""):
		return target{}, badQuestion("%q is not a Service, an address, a DNS name or a URL: ask for something like default/web, 10.96.0.1:80 or web.default.svc:80", s)
	case found:
		return target{service: model.Name{Namespace: namespace, Name: service}, port: port}, nil
	}
	if full, ok := dnsName(name); ok {
		return target{service: full, port: port}, nil
	}
	if strings.Contains(name, ".") {
		return target{}, badQuestion("%q is not the DNS name of a Service, which is name.namespace.svc and the cluster's domain", s)
	}
	return target{service: model.Name{Name: name}, port: port}, nil
}

// portOf returns the number of a port, 0 if the text is none.
func portOf(text string) uint16 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// protocolOf returns the protocol of a name in any case, 0 if there is none.
func protocolOf(name string) model.Protocol {
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		if strings.EqualFold(name, p.String()) {
			return p
		}
	}
	return 0
}

// cutPort cuts a port off the end.
func cutPort(text string) (name, port string, found bool) {
	at := strings.LastIndex(text, ":")
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+1:], true
}

// isName reports whether text consists of letters, digits, hyphens, dots and underscores.
func isName(text string) bool {
	return text != "" && strings.IndexFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_')
	}) < 0
}

// dnsName parses name.namespace, optionally with svc and the cluster's domain.
func dnsName(text string) (model.Name, bool) {
	labels := strings.Split(strings.TrimSuffix(strings.ToLower(text), "."), ".")
	if len(labels) < 2 || len(labels) > 2 && labels[2] != "svc" || slices.Contains(labels, "") {
		return model.Name{}, false
	}
	return model.Name{Namespace: labels[1], Name: labels[0]}, true
}

func isKind(namespace string) bool {
	return slices.Contains([]string{"svc", "service", "services"}, strings.ToLower(namespace))
}

// cutProtocol cuts a protocol off the end of a target. A Service may be called
// "tcp": with one slash and no port before it, it is a name.
func cutProtocol(s string) (rest string, p model.Protocol, err error) {
	at := strings.LastIndex(s, "/")
	if at < 0 || !strings.Contains(s[:at], ":") && portOf(s[:at]) == 0 {
		return s, 0, nil
	}
	if p = protocolOf(s[at+1:]); p != 0 {
		return s[:at], p, nil
	}
	return "", 0, badQuestion("%q is not a protocol of Services: use TCP, UDP or SCTP", s[at+1:])
}

func (t *target) means(p *model.ServicePort) bool {
	if t.proto != 0 && t.proto != p.Protocol {
		return false
	}
	return t.port == "" || t.port == p.Name || t.port == strconv.Itoa(int(p.Port)) || t.meansNodePort(p)
}

func (t *target) meansNodePort(p *model.ServicePort) bool {
	return p.NodePort != 0 && t.port == strconv.Itoa(int(p.NodePort)) && t.port != strconv.Itoa(int(p.Port))
}

// number returns the port, if the question gives a number.
func (t *target) number() (uint16, bool) { return portOf(t.port), portOf(t.port) != 0 }
