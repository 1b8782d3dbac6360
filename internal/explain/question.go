package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"sluice/internal/model"
)

// ErrQuestion is the error of a question that cannot be parsed.
var ErrQuestion = errors.New("cannot parse the question")

// Question is a question as people write it.
type Question struct {
	// To is a Service as namespace/name or namespace/name:port, or an address as
	// IP:port or IP:port/protocol.
	To string
	// From is an IP, or one of the words pod, node and outside; pod if empty.
	From string
	// Interface is what the packet arrives through. If it is empty and pods are
	// recognised by their interface, it is the one that leads to From.
	Interface string
}

// target is the destination of a question.
type target struct {
	service model.Name // if it is asked by name
	port    string     // of the service: name or number, "" for all
	key     netip.AddrPort
	proto   model.Protocol // 0 if the question has none
}

func badQuestion(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrQuestion, fmt.Errorf(format, args...))
}

func parseTarget(s string) (target, error) {
	rest, proto, err := cutProtocol(s)
	if err != nil {
		return target{}, err
	}
	if at, err := netip.ParseAddrPort(rest); err == nil {
		if at.Port() == 0 {
			return target{}, badQuestion("%q has port 0: use one from 1 to 65535", s)
		}
		return target{key: netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()), proto: proto}, nil
	}
	if ip, err := netip.ParseAddr(strings.Trim(rest, "[]")); err == nil {
		return target{}, badQuestion("%q lacks a port: ask for %s", s, netip.AddrPortFrom(ip, 80))
	}
	namespace, name, found := strings.Cut(rest, "/")
	name, port, _ := strings.Cut(name, ":")
	switch {
	case !found && !strings.Contains(rest, ":"):
		return target{}, badQuestion("%q lacks a namespace: ask for default/%s if you mean that one", s, rest)
	case !found || namespace == "" || name == "" || strings.Contains(name, "/"):
		return target{}, badQuestion("%q is neither namespace/name[:port] nor IP:port[/protocol]", s)
	}
	return target{service: model.Name{Namespace: namespace, Name: name}, port: port, proto: proto}, nil
}

// cutProtocol cuts a protocol off the end of a target. A Service may be called
// "tcp": with one slash and no port before it, it is a name.
func cutProtocol(s string) (rest string, p model.Protocol, err error) {
	at := strings.LastIndex(s, "/")
	if at < 0 || !strings.Contains(s[:at], ":") {
		return s, 0, nil
	}
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		if strings.EqualFold(s[at+1:], p.String()) {
			return s[:at], p, nil
		}
	}
	return "", 0, badQuestion("%q is not a protocol of Services: use TCP, UDP or SCTP", s[at+1:])
}

// means reports whether the question is for a port of a Service.
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
func (t *target) number() (uint16, bool) {
	n, err := strconv.ParseUint(t.port, 10, 16)
	return uint16(n), err == nil && n > 0
}
