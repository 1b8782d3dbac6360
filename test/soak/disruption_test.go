//go:build linux

package soak

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"sluice/internal/testkit"
	"sluice/test/fakeapi"
	"sluice/test/lab"
	"sluice/test/lab/scenario"
)

// disruption is something that happens to the proxy.
type disruption struct {
	name string
	// copies is how many of it are in the deck.
	copies int
	do     func(*soak, *window) error
}

// disruptions are all kinds.
func disruptions() []disruption {
	return []disruption{
		{"kill -9", 2, (*soak).kill},
		{"killed while it starts", 1, (*soak).killStarting},
		{"SIGTERM", 1, (*soak).restart},
		{"tampering", 5, (*soak).tamper},
		{"tampering under change", 2, (*soak).tamperUnderChange},
		{"tampering while no proxy runs", 1, (*soak).tamperWhileDown},
		{"neighbour writes nftables", 1, (*soak).neighbourNFT},
		{"neighbour writes iptables", 1, (*soak).neighbourIPTables},
		{"API server refuses connections", 1, (*soak).apiRefuses},
		{"API server in trouble", 2, (*soak).apiFault},
		{"restart without an API server", 1, (*soak).restartAlone},
		{"other configuration", 3, (*soak).reconfigure},
		{"wrong configuration", 1, (*soak).misconfigure},
		{"other mode", 2, (*soak).changeMode},
	}
}

// deck deals at random, without repeating anything too often.
type deck[A any] struct {
	all, left []A
}

func (d *deck[A]) draw(rng *rand.Rand) A {
	if len(d.left) == 0 {
		d.left = slices.Clone(d.all)
		rng.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	a := d.left[0]
	d.left = d.left[1:]
	return a
}

// chosen reports whether the flags ask for something of that name.
func chosen(name string) bool {
	return *only == "" || slices.ContainsFunc(strings.Split(*only, ","), func(n string) bool { return strings.HasPrefix(name, n) })
}

func (s *soak) deck() *deck[disruption] {
	s.Helper()
	d := &deck[disruption]{}
	for _, a := range disruptions() {
		if !chosen(a.name) || a.name == "other mode" && *mode != "" {
			continue
		}
		for range a.copies {
			d.all = append(d.all, a)
		}
	}
	if len(d.all) == 0 {
		s.Skipf("no disruption is called %q", *only)
	}
	return d
}

// upTo returns a random duration.
func upTo(rng *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(most)))
}

func (s *soak) kill(*window) error {
	if err := s.end((*lab.Proxy).Kill); err != nil {
		return err
	}
	time.Sleep(upTo(s.rng, 300*time.Millisecond))
	return s.startAgain()
}

func (s *soak) startAgain() error {
	if err := s.start(s.ctx); err != nil {
		return err
	}
	return s.catchUp()
}

func (s *soak) killStarting(*window) error {
	for range 1 + s.rng.IntN(4) {
		if err := s.end((*lab.Proxy).Kill); err != nil {
			return err
		}
		if err := s.start(s.ctx); err != nil {
			return err
		}
		time.Sleep(upTo(s.rng, 250*time.Millisecond))
	}
	return s.kill(nil)
}

func (s *soak) restart(*window) error {
	if err := s.end((*lab.Proxy).Stop); err != nil {
		return err
	}
	return s.startAgain()
}

// changeMode restarts the proxy in another mode, which does not know the remembered
// clients of the old one.
func (s *soak) changeMode(w *window) error {
	w.forgets = true
	// Where connections end with the process, they would not survive.
	others := slices.DeleteFunc(scenario.SupportedModeNames(s.ctx), func(m string) bool { return m == s.mode || scenario.Modes[m].InProcess })
	end, ended := (*lab.Proxy).Stop, "told to end"
	if s.rng.IntN(2) == 0 {
		end, ended = (*lab.Proxy).Kill, "killed"
	}
	if err := s.end(end); err != nil {
		return err
	}
	before := s.mode
	s.mode = others[s.rng.IntN(len(others))]
	s.note("from %s, %s, to %s", before, ended, s.mode)
	if err := s.startAgain(); err != nil {
		return err
	}
	// Leftovers of the previous mode may answer for a while.
	return testkit.Poll(followLimit, func() error {
		stray, err := s.strayRules(s.ctx)
		if err == nil && len(stray) > 0 {
			err = fmt.Errorf("%s mode left:\n%s", before, strings.Join(stray, "\n"))
		}
		return err
	})
}

// neighbourTable is the table of the neighbour.
const neighbourTable = "soak-neighbour"

// neighbour writes its own rules for a while, every 100 ms.
func (s *soak) neighbour(write func(i int) error, tidy func() error) error {
	end := time.Now().Add(time.Second + upTo(s.rng, time.Second))
	for i := 0; time.Now().Before(end); i++ {
		if err := write(i); err != nil {
			return errors.Join(err, tidy())
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := s.catchUp(); err != nil { // changes do not wait for a neighbour
		return errors.Join(err, tidy())
	}
	return tidy()
}

func (s *soak) neighbourNFT(*window) error {
	script := func(text string) error {
		_, err := s.run(s.ctx, text, "nft", "-f", "-")
		return err
	}
	return s.neighbour(func(i int) error {
		return script(fmt.Sprintf("table inet %[1]s { chain c { }; set s { type ipv4_addr; }; }\n"+
			"add rule inet %[1]s c counter\nadd element inet %[1]s s { 192.0.2.%[2]d }\n", neighbourTable, i%250))
	}, func() error { return script("delete table inet " + neighbourTable) })
}

func (s *soak) neighbourIPTables(*window) error {
	v := []string{"nft", "legacy"}[s.rng.IntN(2)]
	s.note("by iptables-%s", v)
	run := func(args string) error {
		_, err := s.run(s.ctx, "", append([]string{"iptables-" + v, "-w", "10"}, strings.Fields(args)...)...)
		return err
	}
	if err := run("-N SOAK-NEIGHBOUR"); err != nil {
		return err
	}
	return s.neighbour(func(i int) error {
		if i%2 == 0 {
			return run("-A SOAK-NEIGHBOUR -s 203.0.113.77/32 -j RETURN")
		}
		return run("-D SOAK-NEIGHBOUR 1")
	}, func() error { return errors.Join(run("-F SOAK-NEIGHBOUR"), run("-X SOAK-NEIGHBOUR")) })
}

// trouble makes the API server fail for a while. Objects keep changing.
func (s *soak) trouble(begin, end func() error) error {
	if err := begin(); err != nil {
		return err
	}
	time.Sleep(200*time.Millisecond + upTo(s.rng, 2*time.Second))
	if err := end(); err != nil {
		return err
	}
	began := time.Now()
	if err := s.catchUp(); err != nil {
		return err
	}
	s.report.follow("after trouble of the API server", time.Since(began))
	return nil
}

func (s *soak) apiRefuses(*window) error { return s.trouble(s.hangUp, s.serve) }

func (s *soak) apiFault(*window) error {
	names := slices.Sorted(maps.Keys(fakeapi.Faults))
	name := names[s.rng.IntN(len(names))]
	s.note("it %s", name)
	s.report.count(s.mode, "API server "+name)
	return s.trouble(func() error {
		s.api.SetFault(fakeapi.Faults[name])
		s.api.Disconnect()
		return nil
	}, func() error {
		s.api.SetFault(nil)
		s.api.Disconnect() // what hangs would hang on
		return nil
	})
}

// restartAlone starts a proxy without an API server.
func (s *soak) restartAlone(*window) error {
	return s.trouble(func() error {
		if err := s.hangUp(); err != nil {
			return err
		}
		if err := s.end((*lab.Proxy).Kill); err != nil {
			return err
		}
		return s.start(s.ctx)
	}, s.serve)
}

// reconfigure changes the configuration file of the running proxy.
func (s *soak) reconfigure(*window) error {
	c := &s.settings
	switch s.rng.IntN(7) {
	case 0:
		c.MasqueradeAll = !c.MasqueradeAll
	case 1:
		c.SyncPeriod = []string{"1s", "10s", "30s"}[s.rng.IntN(3)]
	case 2:
		c.MinSyncPeriod = time.Duration(1+s.rng.IntN(5)) * 200 * time.Millisecond
	case 3:
		c.NodePorts = [][]string{{"primary"}, {"0.0.0.0/0", "::/0"}, {"192.0.2.0/24", "2001:db8::/64"}}[s.rng.IntN(3)]
	case 4:
		c.MasqueradeBit = 12 + s.rng.IntN(4)
	case 5:
		c.Detect = []string{"ClusterCIDR", "InterfaceNamePrefix", "NodeCIDR"}[s.rng.IntN(3)]
	case 6:
		c.Verbosity = s.rng.IntN(3)
	}
	s.note("%+v", *c)
	if err := s.configure(); err != nil {
		return err
	}
	time.Sleep(upTo(s.rng, 500*time.Millisecond))
	return s.catchUp()
}

// misconfigure writes an invalid file, and then the valid one again.
func (s *soak) misconfigure(*window) error {
	if err := s.writeConfig([]string{"", "{[", "kind: Pod\n", "kind: KubeProxyConfiguration\nmode: ipvs\n"}[s.rng.IntN(4)]); err != nil {
		return err
	}
	time.Sleep(upTo(s.rng, 500*time.Millisecond))
	if err := s.catchUp(); err != nil {
		return err
	}
	return s.configure()
}
