package kubectl

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/internal/answer/diff"
	"sluice/internal/answer/explain"
	"sluice/internal/answer/listing"
	"sluice/internal/answer/output"
	"sluice/internal/answer/question"
	"sluice/internal/answer/status"
	"sluice/internal/base/printable"
	"sluice/internal/base/release"
	"sluice/internal/observe/history"
	"sluice/internal/observe/verdict"
	"sluice/internal/source/manifest"
)

// Main runs the command line and returns the exit code of the process.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return run(ctx, args, stdin, stdout, stderr)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &plugin{}
	cmd := p.newCommand()
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(stderr, "Error: %s\n", printable.Escape(err.Error()))
		return noAnswer
	}
	return p.code
}

// plugin is one run of the plugin.
type plugin struct {
	access access
	node   string
	format output.Format
	code   int // to exit with
}

func (p *plugin) newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-sluice",
		Short: "Ask the Sluice proxies of a cluster",
		Long: `kubectl sluice asks the proxies of a cluster what they do. It finds their pods through
the API server and runs the commands of kube-proxy in them, as kubectl exec does.

Without --node it asks all nodes. check is for a node without Sluice, and runs in a pod of
its own.

Exit codes: 0 if all is well, 1 if not, 2 if a node gives no answer.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl sluice"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&p.access.kubeconfig, "kubeconfig", "", "Kubeconfig file. By default the one that kubectl uses.")
	flags.StringVar(&p.access.context, "context", "", "Context of the kubeconfig.")
	flags.StringVarP(&p.access.namespace, "namespace", "n", systemNamespace, "Namespace of the proxy's pods.")
	flags.StringSliceVarP(&p.access.selectors, "selector", "l", defaultSelectors,
		"Labels of the proxy's pods; each selector is tried in turn, for nodes without such a pod.")
	flags.StringVar(&p.access.serviceProxyName, "service-proxy-name", "",
		"Ask the proxies that serve only Services of this name, which the chart labels "+nameLabel+".")
	flags.StringVar(&p.node, "node", "", "Ask the proxy on this node only.")
	cmd.AddCommand(p.newStatus(), p.newExplain(), p.newServices(), p.newEvents(), p.newDiff(), p.newCheck(), p.newVersion())
	return cmd
}

const systemNamespace = "kube-system"

func (p *plugin) find(ctx context.Context) (*cluster, []pod, error) {
	c, err := p.access.connect()
	if err != nil {
		return nil, nil, err
	}
	pods, err := c.pods(ctx, p.node)
	return c, pods, err
}

// asker asks nodes a question.
type asker[Query, Reply any] struct {
	*plugin
	*question.Question[Query, Reply]
	query *Query
	out   io.Writer
	// words ask the question on the command line of kube-proxy, whose flags stay the same from
	// version to version, and input is what it reads.
	words []string
	input []byte
}

// asking completes a command that asks nodes a question, with some flags of it. The namespace of
// Services is --in, because -n is the one of the proxy's pods.
func asking[Query, Reply any](
	p *plugin, cmd *cobra.Command, q *question.Question[Query, Reply], names []string,
	run func(context.Context, *asker[Query, Reply]) error,
) *cobra.Command {
	query := new(Query)
	fields := q.Fields(query)
	flags := make([]pflag.Flag, len(names))
	for i, name := range names {
		flags[i] = *fields.Lookup(name)
		if name == "namespace" {
			flags[i].Name, flags[i].Shorthand = "in", ""
		}
		cmd.Flags().AddFlag(&flags[i])
	}
	if cmd.Args == nil {
		cmd.Args = cobra.NoArgs
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a := &asker[Query, Reply]{plugin: p, Question: q, query: query, out: cmd.OutOrStdout()}
		for i, name := range names {
			if flags[i].Changed {
				a.words = append(a.words, "--"+name+"="+flags[i].Value.String())
			}
		}
		for _, arg := range args {
			if err := fields.Set(q.Argument, arg); err != nil {
				return err
			}
			a.words = append(a.words, "--", arg)
		}
		if err := q.Validate(query); err != nil {
			return err
		}
		return run(cmd.Context(), a)
	}
	p.format.AddFlags(cmd)
	return cmd
}

// ask asks the nodes, and writes their answers by functions: that of one node if that is asked for
// and can be written, and otherwise those of several.
func (a *asker[Query, Reply]) ask(
	ctx context.Context, one func(io.Writer, *Reply) error, several func(io.Writer, []*answer[Reply]) error,
) error {
	c, pods, err := a.find(ctx)
	if err != nil {
		return err
	}
	answers := askAll[Reply](ctx, c, pods, a.Field, a.input, append([]string{a.Name, "--json"}, a.words...))
	return write(a.plugin, a.out, answers, one, several)
}

func write[Reply any](
	p *plugin, w io.Writer, answers []*answer[Reply],
	one func(io.Writer, *Reply) error, several func(io.Writer, []*answer[Reply]) error,
) error {
	p.code = worst(answers)
	return p.format.Write(w, listed(answers), func(w io.Writer) error {
		if p.node == "" || one == nil {
			return several(w, answers)
		}
		if a := answers[0]; a.err != nil {
			return fmt.Errorf("node %s: %w", a.pod.node, a.err)
		}
		return one(w, answers[0].reply)
	})
}

// newVersion returns the command that prints the version of the plugin. Those of the
// proxies are in the table of status.
func (p *plugin) newVersion() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of the plugin",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := map[string]string{"sluice": release.Version()}
			return p.format.Write(cmd.OutOrStdout(), info, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "kubectl sluice %s\n", info["sluice"])
				return err
			})
		},
	}
	p.format.AddFlags(cmd)
	return cmd
}

func (p *plugin) newStatus() *cobra.Command {
	return asking(p, &cobra.Command{
		Use:   "status",
		Short: "Show the status of all proxies in a table, or of one in full",
	}, question.Status, nil, func(ctx context.Context, a *asker[question.None, status.Report]) error {
		return a.ask(ctx, a.Write, writeStatus)
	})
}

// writeStatus writes one line for each node.
func writeStatus(w io.Writer, answers []*answer[status.Report]) error {
	var t printable.Table
	t.Row("NODE", "VERDICT", "MODE", "VERSION", "UP", "SERVICES", "BROKEN", "FAILED", "PROBLEMS")
	for _, a := range answers {
		r := a.reply
		if a.err != nil {
			t.Row(a.pod.node, "NO ANSWER: "+a.err.Error(), "", "", "", "", "", "", "")
			continue
		}
		word := r.Word.Text()
		if r.Word != verdict.Serving {
			word = strings.ToUpper(word)
		}
		services := fmt.Sprint(r.Services)
		if r.ServiceProxyName != "" {
			services += " of " + r.ServiceProxyName
		}
		t.Row(a.pod.node, word, r.Mode, r.Version, printable.Duration(r.Now.Sub(r.Started).Round(time.Second)),
			services, fmt.Sprint(r.BrokenServices()), fmt.Sprint(r.Frontends.Failed), fmt.Sprint(r.ProblemCount))
	}
	return t.Write(w)
}

func (p *plugin) newExplain() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "explain SERVICE[:PORT] | IP[:PORT] | URL",
		Short: "Explain what happens to a packet, on one node or on all",
		Long: `explain asks the proxies what happens to a packet, as kube-proxy explain does. For all
nodes it shows which of them give the same answer, so that you see where a Service does
not work.`,
		Example: `  kubectl sluice explain default/web --node worker-1
  kubectl sluice explain --from outside https://shop.example.svc
  kubectl sluice explain default/web --all-nodes`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().BoolVar(&all, "all-nodes", false, "Ask all nodes. This is the default without --node.")
	flags := []string{"from", "interface"}
	return asking(p, cmd, question.Explain, flags, func(ctx context.Context, a *asker[explain.Question, explain.Reply]) error {
		if all && p.node != "" {
			return errors.New("--node and --all-nodes exclude each other")
		}
		return a.ask(ctx, a.Write, writeExplanations)
	})
}

// writeExplanations writes each answer once, with the nodes that give it.
func writeExplanations(w io.Writer, answers []*answer[explain.Reply]) error {
	var lines printable.Lines
	groups := grouped(answers, func(r *explain.Reply) string {
		var heads []string
		if others, _ := r.Others(); others != "" {
			heads = append(heads, "the Service "+others)
		}
		for i := range r.Answers {
			heads = append(heads, subject(&r.Answers[i])+r.Answers[i].Headline())
		}
		return strings.Join(heads, "\n")
	})
	for i, g := range groups {
		if i > 0 {
			lines.Line("")
		}
		lines.Line("%s (%d of %d): %s", printable.Count(len(g.nodes), "node"), len(g.nodes), len(answers), g.nodeList())
		for head := range strings.SplitSeq(g.key, "\n") {
			lines.Line("  %s", head)
		}
		if g.reply == nil {
			continue
		}
		for i := range g.reply.Answers {
			for _, advice := range g.reply.Answers[i].Problems {
				lines.Line("  problem      %s", advice.Text)
				if advice.Remedy != "" {
					lines.Line("  what to do   %s", advice.Remedy)
				}
			}
		}
	}
	return lines.Write(w)
}

// subject is what an answer is about. Addresses that differ from node to node are not
// part of it.
func subject(a *explain.Answer) string {
	if a.Service == nil {
		return ""
	}
	text := "Service " + a.Service.Namespace + "/" + a.Service.Name
	if a.Service.Port != "" {
		text += ":" + a.Service.Port
	}
	if a.Frontend != nil {
		text += " (" + a.Frontend.Kind + ")"
	}
	return text + " "
}

func (p *plugin) newServices() *cobra.Command {
	var failing bool
	cmd := &cobra.Command{
		Use:   "services",
		Short: "List Services, and the nodes on which they do not work",
	}
	cmd.Flags().BoolVar(&failing, "failing", false, "Only Services that do not work on some node.")
	flags := []string{"namespace", "top"}
	return asking(p, cmd, question.Services, flags, func(ctx context.Context, a *asker[listing.Query, listing.List]) error {
		if failing && p.node != "" {
			a.words = append(a.words, "--failing")
		}
		return a.ask(ctx, a.Write, func(w io.Writer, answers []*answer[listing.List]) error {
			n, err := writeServices(w, answers, failing, a.query.Top)
			if failing && n > 0 {
				p.code = max(p.code, bad)
			}
			return err
		})
	})
}

// row is a Service on all nodes.
type row struct {
	namespace, name      string
	endpoints            int
	connections, refused float64
	failing              []string // "node: state"
	nodes                int
}

// writeServices writes one line for each Service and returns how many fail somewhere.
func writeServices(w io.Writer, answers []*answer[listing.List], failing, top bool) (broken int, err error) {
	rows := map[string]*row{}
	var missing []string
	for _, a := range answers {
		if a.err != nil {
			missing = append(missing, a.pod.node+": NO ANSWER: "+a.err.Error())
			continue
		}
		for i := range a.reply.Services {
			s := &a.reply.Services[i]
			r := rows[s.Namespace+"/"+s.Name]
			if r == nil {
				r = &row{namespace: s.Namespace, name: s.Name}
				rows[s.Namespace+"/"+s.Name] = r
			}
			r.nodes++
			r.endpoints = max(r.endpoints, s.Endpoints)
			r.connections += s.Connections
			r.refused += s.Refused
			if s.Failing() {
				r.failing = append(r.failing, a.pod.node+": "+s.Word.Text())
			}
		}
	}
	var t printable.Table
	head := []string{"NAMESPACE", "NAME", "ENDPOINTS", "NODES"}
	if top {
		head = append(head, "CONN/S", "REFUSED/S")
	}
	t.Row(append(head, "FAILING ON")...)
	for _, r := range sorted(rows, top) {
		if len(r.failing) > 0 {
			broken++
		} else if failing {
			continue
		}
		cells := []string{r.namespace, r.name, fmt.Sprint(r.endpoints), fmt.Sprint(r.nodes)}
		if top {
			cells = append(cells, fmt.Sprintf("%.1f", r.connections), fmt.Sprintf("%.1f", r.refused))
		}
		where := "-"
		if len(r.failing) > 0 {
			where = printable.List(r.failing, func(s string) string { return s })
		}
		t.Row(append(cells, where)...)
	}
	for _, m := range missing {
		t.Note(m)
	}
	return broken, t.Write(w)
}

func sorted(rows map[string]*row, top bool) []*row {
	out := make([]*row, 0, len(rows))
	for _, r := range rows {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *row) int {
		if d := cmp.Compare(b.connections+b.refused, a.connections+a.refused); top && d != 0 {
			return d
		}
		return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
	})
	return out
}

func (p *plugin) newEvents() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "events [-f] [NAMESPACE/NAME]",
		Short: "Show what happened to Services and endpoints on the nodes",
		Args:  cobra.MaximumNArgs(1),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "Keep showing new events, until interrupted.")
	flags := []string{"namespace", "last"}
	return asking(p, cmd, question.Events, flags, func(ctx context.Context, a *asker[history.Query, question.EventList]) error {
		if !follow {
			return a.ask(ctx, nil, writeEvents)
		}
		c, pods, err := p.find(ctx)
		if err == nil {
			p.code = c.follow(ctx, a.out, &p.format, pods, append([]string{a.Name, "--follow", "--json"}, a.words...))
		}
		return err
	})
}

type nodeEvent struct {
	Node string `json:"node"`
	history.Event
}

// nodeError is why a node has no events.
type nodeError struct {
	Node  string `json:"node"`
	Error string `json:"error"`
}

func (e *nodeError) line() string {
	return fmt.Sprintf("%s: NO ANSWER: %s\n", printable.Escape(e.Node), printable.Escape(e.Error))
}

func (e *nodeEvent) line() string { return question.Line(&e.Event, e.Node) }

// writeEvents writes the events of all nodes in the order of their times.
func writeEvents(w io.Writer, answers []*answer[question.EventList]) error {
	var all []nodeEvent
	for _, a := range answers {
		if a.err != nil {
			if _, err := io.WriteString(w, (&nodeError{a.pod.node, a.err.Error()}).line()); err != nil {
				return err
			}
			continue
		}
		for _, e := range a.reply.Events {
			all = append(all, nodeEvent{a.pod.node, e})
		}
	}
	slices.SortStableFunc(all, func(a, b nodeEvent) int { return a.At.Compare(b.At) })
	for i := range all {
		if _, err := io.WriteString(w, all[i].line()); err != nil {
			return err
		}
	}
	return nil
}

// follow writes the events of nodes as they happen, until ctx ends, and returns the exit code.
func (c *cluster) follow(ctx context.Context, w io.Writer, format *output.Format, pods []pod, args []string) (code int) {
	var mu sync.Mutex // of w and code
	write := func(value any, line string) {
		mu.Lock()
		defer mu.Unlock()
		_ = format.WriteOne(w, value, line) // whoever reads it may be gone
	}
	var group sync.WaitGroup
	for _, p := range pods {
		group.Go(func() {
			err := c.followOne(ctx, p, args, func(e *nodeEvent) { write(e, e.line()) })
			if err != nil && ctx.Err() == nil {
				e := &nodeError{p.node, err.Error()}
				write(e, e.line())
				mu.Lock()
				defer mu.Unlock()
				code = noAnswer
			}
		})
	}
	group.Wait()
	return code
}

// followOne calls a function for each event of a node, as long as the node writes events.
func (c *cluster) followOne(ctx context.Context, p pod, args []string, each func(*nodeEvent)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil) // also if it has more to say
	in, out := io.Pipe()
	defer in.Close()
	go func() {
		errs := &bounded{most: maxError, full: stop}
		code, err := c.exec(ctx, p, args, nil, out, errs)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		} else if err == nil { // there would be more
			err = complaint(errs.kept.String(), code)
		}
		out.CloseWithError(err)
	}()
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		e, err := decode[history.Event](scanner.Bytes(), "id")
		if err != nil {
			return fmt.Errorf("pod %s does not write events as Sluice does: %w", p.name, err)
		}
		each(&nodeEvent{p.node, *e})
	}
	return scanner.Err()
}

// maxBytes is how much a diff may send to each node.
const maxBytes = 16 << 20

func (p *plugin) newDiff() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Show what manifests would change on the nodes, if they were applied",
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "File or directory of manifests, - for standard input.")
	_ = cmd.MarkFlagRequired("filename") // it exists
	return asking(p, cmd, question.Diff, nil, func(ctx context.Context, a *asker[question.Proposal, diff.Report]) (err error) {
		if a.input, err = readManifests(file, cmd.InOrStdin()); err != nil {
			return err
		}
		a.words = []string{"--add", "--manifests=-"}
		return a.ask(ctx, nil, writeDiffs)
	})
}

// writeDiffs writes each difference once, with the nodes that have it.
func writeDiffs(w io.Writer, answers []*answer[diff.Report]) error {
	var lines printable.Lines
	for _, g := range grouped(answers, func(r *diff.Report) string {
		var text strings.Builder
		_ = diff.Write(&text, r) // a Builder takes everything
		return text.String()
	}) {
		lines.Line("%s: %s", printable.Count(len(g.nodes), "node"), g.nodeList())
		for line := range strings.Lines(g.key) {
			lines.Line("  %s", strings.TrimSuffix(line, "\n"))
		}
	}
	return lines.Write(w)
}

// readManifests joins the files of a path to one stream of documents.
func readManifests(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(io.LimitReader(stdin, maxBytes))
	}
	files, err := manifest.ReadFiles(path, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	var all bytes.Buffer
	for _, f := range files {
		if f.Problem != nil {
			return nil, fmt.Errorf("read the manifests: %s", f.Problem.Reason)
		}
		fmt.Fprintf(&all, "\n---\n%s", f.Data)
	}
	return all.Bytes(), nil
}
