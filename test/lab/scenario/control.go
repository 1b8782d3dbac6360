//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/test/lab"
)

// start starts the proxy and waits until it has programmed everything.
func (r *runner) start(ctx context.Context) error {
	if r.proxy != nil {
		return errors.New("the proxy runs already")
	}
	mode := Modes[r.mode]
	if err := mode.PrepareNode(ctx, r.lab); err != nil {
		return err
	}
	p, err := r.lab.StartProxy(lab.ProxyOptions{
		Binary:    r.Binary,
		Manifests: r.manifests,
		Flags:     slices.Concat([]string{"--proxy-mode", mode.Name, "--control-socket", r.socket()}, mode.Flags, r.flags),
	})
	if err != nil {
		return err
	}
	r.proxy = p
	return r.settle(ctx, 0)
}

func (r *runner) stop(context.Context) error { return r.end((*lab.Proxy).Stop) }

func (r *runner) kill(context.Context) error { return r.end((*lab.Proxy).Kill) }

func (r *runner) end(how func(*lab.Proxy) error) error {
	if r.proxy == nil {
		return errors.New("no proxy runs")
	}
	err := how(r.proxy)
	r.logs = append(r.logs, r.proxy.Log().String())
	r.proxy = nil
	if Modes[r.mode].InProcess {
		clear(r.stuck)
	}
	return err
}

// restart starts a proxy, after killing the one that runs.
func (r *runner) restart(ctx context.Context) error {
	if r.proxy != nil {
		if err := r.kill(ctx); err != nil {
			return err
		}
	}
	return r.start(ctx)
}

// flush deletes the rules on node1 behind the proxy's back.
func (r *runner) flush(ctx context.Context) error {
	_, err := r.onNode(ctx, Modes[r.mode].Flush...)
	return err
}

// remember keeps an expectation for again, instead of earlier ones that it contradicts.
func (r *runner) remember(e action) {
	if slices.Contains(r.expectations, e) {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(r.expectations), func(o action) bool { return contradict(e, o) })
	r.expectations = append(kept, e)
}

// contradict reports whether two expectations cannot both hold.
func contradict(a, b action) bool {
	switch a := a.(type) {
	case *expectation:
		b, ok := b.(*expectation)
		return ok && a.kind != b.kind && fmt.Sprint(a.flows) == fmt.Sprint(b.flows)
	case *explanation:
		b, ok := b.(*explanation)
		return ok && (a.word != b.word || a.text != b.text) && fmt.Sprint(a.flows) == fmt.Sprint(b.flows)
	case judgement:
		b, ok := b.(judgement)
		return ok && a.service == b.service && a.from == b.from && (a.word != b.word || a.why != b.why)
	}
	return false
}

// again checks all expectations since the objects last changed.
func (r *runner) again(ctx context.Context) error {
	for _, e := range r.expectations {
		if err := e.run(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) onNode(ctx context.Context, command ...string) (string, error) {
	node, err := r.lab.Host("node1")
	if err != nil {
		return "", err
	}
	return node.Run(ctx, lab.Command{Args: command, Dir: r.work})
}

// kernel returns what the mode keeps in the kernel, as text.
func (r *runner) kernel() (string, error) { return r.kernelOf(r.mode) }

func (r *runner) kernelOf(mode string) (string, error) {
	return r.onNode(context.Background(), Modes[mode].Dump...)
}

// parseKernel reads "[of MODE] has TEXT", about the rules in the kernel.
func parseKernel(p *parser, rest string) (action, error) {
	if after, ok := strings.CutPrefix(rest, "of "); ok {
		mode, rest, _ := strings.Cut(after, " ")
		if _, known := Modes[mode]; !known {
			return nil, fmt.Errorf("unknown mode %q: have %v", mode, ModeNames())
		}
		return parseText(func(r *runner) (string, error) { return r.kernelOf(mode) })(p, rest)
	}
	return parseText((*runner).kernel)(p, rest)
}

func parseMode(_ *parser, mode string) (action, error) {
	if _, ok := Modes[mode]; !ok {
		return nil, fmt.Errorf("unknown mode %q: have %v", mode, ModeNames())
	}
	return does(func(_ context.Context, r *runner) error {
		r.mode = mode
		return nil
	}), nil
}

// proxyLog returns what the running proxy has logged.
func (r *runner) proxyLog() (string, error) {
	if r.proxy == nil {
		return "", errors.New("no proxy runs")
	}
	return r.proxy.Log().String(), nil
}

func parseExec(_ *parser, rest string) (action, error) {
	name, command, ok := strings.Cut(rest, " ")
	if !ok || !knownHost(name) {
		return nil, errors.New("want HOST COMMAND")
	}
	return does(func(ctx context.Context, r *runner) error {
		host, err := r.lab.Host(name)
		if err != nil {
			return err
		}
		r.output, err = host.Run(ctx, lab.Command{Args: []string{"sh", "-c", command}, Dir: r.work})
		return err
	}), nil
}

// parseText reads "has TEXT" and "lacks TEXT", about the text that get returns.
func parseText(get func(*runner) (string, error)) func(*parser, string) (action, error) {
	return func(_ *parser, rest string) (action, error) {
		verb, text, ok := strings.Cut(rest, " ")
		if !ok || (verb != "has" && verb != "lacks") {
			return nil, errors.New("want has TEXT or lacks TEXT")
		}
		return does(func(ctx context.Context, r *runner) error {
			return r.eventually(ctx, func() error {
				got, err := get(r)
				if err != nil {
					return err
				}
				if strings.Contains(got, text) != (verb == "has") {
					return fmt.Errorf("it does not hold for:\n%s", got)
				}
				return nil
			})
		}), nil
	}
}
