package nodeproblem

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"sluice/internal/kernel/iptables"
	"sluice/internal/kernel/nft"
	"sluice/internal/kernel/xtables"
	"sluice/internal/model"
)

// reader reads the base chains of all programs, in nftables and in legacy iptables.
type reader struct {
	// ours reports whether a chain of iptables is kube-proxy's. Rules in base chains that lead
	// there decide nothing about connections to endpoints, except that ForwardChain accepts
	// some if accepts is set.
	ours    func(chain string) bool
	accepts bool

	followed int // chains of nftables that rules led to
}

// attempts is how often tables are read again because others changed them meanwhile.
const attempts = 5

// nftables reads those of nftables, also those that iptables-nft has there.
func (r *reader) nftables(ctx context.Context, conn *nft.Conn) (all []chain, err error) {
	for range attempts {
		all, err, r.followed = nil, nil, 0
		for _, family := range []nft.Family{nft.IP, nft.IP6, nft.INet} {
			some, ferr := r.nftFamily(ctx, conn, family)
			all, err = append(all, some...), errors.Join(err, ferr)
		}
		if !errors.Is(err, nft.ErrInterrupted) {
			break
		}
	}
	return all, err
}

func (r *reader) nftFamily(ctx context.Context, conn *nft.Conn, family nft.Family) (all []chain, err error) {
	tables, err := conn.Tables(ctx, family)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || err == nil && len(tables) == 0 {
		return nil, nil // a kernel without nftables for the family, or nothing in it
	}
	if err != nil {
		return nil, err
	}
	base, err := conn.BaseChains(ctx, family)
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		if t.Dormant {
			continue
		}
		reading := nftTable{reader: r, conn: conn, table: t, chains: map[string][]rule{}}
		for _, ch := range base[t.Name] {
			if h := hook(ch.Hook); h != input && h != forward && h != output {
				continue
			}
			rules, err := reading.read(ctx, ch.Name)
			if errors.Is(err, unix.ENOENT) { // it is gone
				continue
			}
			if err != nil {
				return all, err
			}
			c := describe(t, base[t.Name], ch)
			c.rules, c.particular = rules, particular(rules)
			all = append(all, c)
		}
	}
	return all, nil
}

// nftTable reads a table of nftables.
type nftTable struct {
	*reader
	conn   *nft.Conn
	table  nft.Table
	chains map[string][]rule      // those that were read
	sets   map[string]nft.SetInfo // nil before they were read
}

func (t *nftTable) read(ctx context.Context, chain string) ([]rule, error) {
	if rules, known := t.chains[chain]; known {
		return rules, nil
	}
	exprs, err := t.conn.Expressions(ctx, t.table, chain)
	if err != nil {
		return nil, err
	}
	var rules []rule
	for _, e := range exprs {
		some, err := t.rules(ctx, e)
		if err != nil {
			return nil, err
		}
		rules = append(rules, some...)
	}
	t.chains[chain] = rules
	return rules, nil
}

// maxFollowed is how many chains that rules lead to are read at a time. Few firewalls need as
// many for packets to Services, and those with a chain for each pod are not worth the time.
const maxFollowed = 64

// follow has a rule of nftables lead to a chain.
func (t *nftTable) follow(ctx context.Context, out *rule, to string, last bool) (err error) {
	if t.jump(out, to); out.action != decide {
		return nil
	}
	if _, known := t.chains[to]; !known {
		if t.followed == maxFollowed {
			return nil
		}
		t.followed++
	}
	if out.rules, err = t.read(ctx, to); err != nil {
		return err
	}
	out.action, out.last = follow, last
	return nil
}

// describe returns a chain of nftables without its rules. A table whose base chains all have
// the names of iptables' is one of iptables-nft.
func describe(t nft.Table, base []nft.Chain, ch nft.Chain) chain {
	c := chain{
		command: "nft", table: t.Family.String() + " " + t.Name, name: ch.Name, hook: hook(ch.Hook), priority: ch.Priority, drops: ch.Drops,
	}
	for _, f := range model.Families {
		if t.Family == nft.INet || t.Family == iptables.NFTFamily(f) {
			c.families = append(c.families, f)
		}
	}
	foreign := func(b nft.Chain) bool { return !slices.Contains(xtables.BuiltinChains[:], b.Name) }
	if t.Family != nft.INet && slices.Contains(iptablesTables, t.Name) && !slices.ContainsFunc(base, foreign) {
		c.command, c.table = iptables.Command(c.families[0])+"-nft", t.Name
	}
	return c
}

// iptablesTables are those of iptables with chains at the hooks that matter. It drops nothing in
// table nat, which may be very large.
var iptablesTables = []string{iptables.Filter, iptables.Mangle, "security", "raw", iptables.NAT}

// legacy reads those of legacy iptables.
func (r *reader) legacy() (all []chain, err error) {
	for _, f := range model.Families {
		filtering := iptablesTables[:len(iptablesTables)-1]
		tables, ferr := iptables.LegacyFamily(f).ReadAll(filtering...)
		err = errors.Join(err, ferr)
		for _, name := range filtering {
			if t := tables[name]; t != nil {
				all = append(all, r.legacyTable(f, name, t)...)
			}
		}
	}
	return all, err
}

func (r *reader) legacyTable(f model.Family, table string, t *xtables.Table) (all []chain) {
	reading := legacyTable{r, t, map[string][]rule{}}
	for _, h := range []hook{input, forward, output} {
		name := xtables.BuiltinChains[h]
		drops, exists := t.Builtin[name]
		if !exists {
			continue
		}
		rules := reading.read(name)
		all = append(all, chain{
			command: iptables.Command(f) + "-legacy", table: table, name: name, families: []model.Family{f}, hook: h, drops: drops,
			rules: rules, particular: particular(rules),
		})
	}
	return all
}

// legacyTable interprets a table of legacy iptables.
type legacyTable struct {
	*reader
	table  *xtables.Table
	chains map[string][]rule // those that were interpreted
}

func (t *legacyTable) read(chain string) []rule {
	if rules, known := t.chains[chain]; known {
		return rules
	}
	var rules []rule
	for i := range t.table.Rules {
		if r := &t.table.Rules[i]; r.Chain == chain {
			rules = append(rules, t.rule(r))
		}
	}
	t.chains[chain] = rules
	return rules
}

func (t *legacyTable) rule(from *xtables.Rule) (out rule) {
	if !from.AnyPacket {
		out.header(&from.Header)
	}
	for _, m := range from.Matches {
		out.match(m.Name, m.Revision, m.Info)
	}
	switch {
	case from.Accepts:
		out.action = accept
	case from.Drops:
		out.action = drop
	case from.Returns:
		out.action = leave
	case from.Jump != "":
		if t.jump(&out, from.Jump); out.action == decide {
			out.action, out.rules, out.last = follow, t.read(from.Jump), from.Goto
		}
	default:
		out.action = target(from.Target.Name)
	}
	return out
}

// jump completes a rule that leads into a chain of kube-proxy; another chain decides.
func (r *reader) jump(out *rule, to string) {
	switch {
	case to == iptables.ForwardChain && r.accepts:
		out.asks(func(p *packet) truth {
			if p.state == stateEstablished {
				return yes
			}
			return min(truthOf(p.masqueraded), p.translated)
		})
		out.action = accept
	case r.ours(to):
		out.action = goOn
	default:
		out.action = decide
	}
}

// target returns what a target of iptables does.
func target(name string) action {
	switch name {
	case "REJECT":
		return drop
	case "", "LOG", "NFLOG", "MARK", "CONNMARK", "SECMARK", "CONNSECMARK", "TCPMSS", "TRACE", "AUDIT", "CHECKSUM", "DSCP", "SET", "CT", "NOTRACK":
		return goOn
	}
	return decide
}
