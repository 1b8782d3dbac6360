//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// action is the effect of a step.
type action interface {
	run(context.Context, *runner) error
}

// does makes an action of a function.
type does func(context.Context, *runner) error

func (f does) run(ctx context.Context, r *runner) error { return f(ctx, r) }

// verbs are the words that steps begin with.
var verbs = map[string]func(p *parser, rest string) (action, error){
	"let":       parseLet,
	"apply":     parseApply,
	"service":   parseService,
	"replace":   parseReplace,
	"remove":    parseRemove,
	"endpoints": parseEndpoints,
	"flags":     parseFlags,
	"mode":      parseMode,
	"start":     plain((*runner).start),
	"stop":      plain((*runner).stop),
	"kill":      plain((*runner).kill),
	"restart":   plain((*runner).restart),
	"flush":     plain((*runner).flush),
	"again":     plain((*runner).again),
	"expect":    parseExpect,
	"http":      parseHTTP,
	"forgotten": parseForgotten,
	"open":      parseOpen,
	"alive":     parseAlive,
	"moved":     parseMoved,
	"reset":     parseReset,
	"traffic":   parseTraffic,
	"lost":      parseLost,
	"exec":      parseExec,
	"output":    parseText(func(r *runner) (string, error) { return r.output, nil }),
	"log":       parseText((*runner).proxyLog),
	"kernel":    parseKernel,
	"verdict":   parseVerdict,
	"explain":   parseExplain,
}

// plain is for verbs that stand alone.
func plain(f func(*runner, context.Context) error) func(*parser, string) (action, error) {
	return func(_ *parser, rest string) (action, error) {
		if rest != "" {
			return nil, fmt.Errorf("nothing may follow, but %q does", rest)
		}
		return does(func(ctx context.Context, r *runner) error { return f(r, ctx) }), nil
	}
}

func parseLet(p *parser, rest string) (action, error) {
	words := strings.Fields(rest)
	if len(words) != 3 {
		return nil, errors.New("want NAME IPV4 IPV6")
	}
	four, err4 := netip.ParseAddr(words[1])
	six, err6 := netip.ParseAddr(words[2])
	if err := errors.Join(err4, err6); err != nil {
		return nil, err
	}
	if !four.Is4() || !six.Is6() {
		return nil, errors.New("want an IPv4 and then an IPv6 address")
	}
	p.names[words[0]] = true
	return does(func(_ context.Context, r *runner) error {
		r.names[words[0]] = [2]netip.Addr{four, six}
		return nil
	}), nil
}

func parseApply(p *parser, rest string) (action, error) {
	names := strings.Fields(rest)
	if len(names) == 0 {
		return nil, errors.New("want the names of files")
	}
	changes := map[string]string{}
	for _, name := range names {
		if err := p.file(name); err != nil {
			return nil, err
		}
		changes[name] = p.script.files[name]
	}
	return does(func(ctx context.Context, r *runner) error { return r.change(ctx, changes, nil) }), nil
}

func parseReplace(p *parser, rest string) (action, error) {
	words := strings.Fields(rest)
	if len(words) != 3 || words[1] != "by" {
		return nil, errors.New("want FILE by FILE")
	}
	if err := p.file(words[2]); err != nil {
		return nil, err
	}
	changes := map[string]string{words[0]: p.script.files[words[2]]}
	return does(func(ctx context.Context, r *runner) error {
		if _, ok := r.applied[words[0]]; !ok {
			return fmt.Errorf("%s is not applied", words[0])
		}
		return r.change(ctx, changes, nil)
	}), nil
}

func parseRemove(_ *parser, rest string) (action, error) {
	names := strings.Fields(rest)
	if len(names) == 0 {
		return nil, errors.New("want the names of files")
	}
	return does(func(ctx context.Context, r *runner) error { return r.change(ctx, nil, names) }), nil
}

func parseEndpoints(_ *parser, rest string) (action, error) {
	words := strings.Fields(rest)
	if len(words) == 0 {
		return nil, errors.New("want the name of a Service")
	}
	list, err := parseEndpointList(words[1:])
	if err != nil {
		return nil, err
	}
	return does(func(ctx context.Context, r *runner) error {
		svc, err := findService(r.applied, words[0])
		if err != nil {
			return err
		}
		manifest, err := makeSlices(svc, list, r.lab)
		if err != nil {
			return err
		}
		return r.change(ctx, map[string]string{slicesFile(words[0]): manifest}, nil)
	}), nil
}

func parseFlags(_ *parser, rest string) (action, error) {
	return does(func(_ context.Context, r *runner) error {
		r.flags = strings.Fields(rest)
		r.expectations = nil
		return nil
	}), nil
}
