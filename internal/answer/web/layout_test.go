package web

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/internal/answer/services"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/test/browser"
)

// shots is for those who want to look at what the tests measure.
var shots = flag.String("shots", "", "directory to put screenshots of the measured pages into")

// widths are those of a phone, a tablet, a laptop and a desktop; heights those of their first
// screen.
var (
	widths  = []int64{390, 820, 1280, 1440}
	heights = map[int64]int64{390: 844, 820: 1180, 1280: 800, 1440: 900}
)

// crowdedWorld has long names, many frontends and all states, which need room.
func crowdedWorld(t *testing.T) *world {
	w := newWorld(t)
	w.Dataplane.Set(func(b *enginetest.Behaviour) {
		b.Refuse[netip.MustParseAddr("10.96.0.85")] = errors.New("no room left in the set of frontends")
	})
	wide := func(s *model.Service) {
		s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr("fd00:10:96::a1b2:c3d4"))
		s.Ports[0].NodePort = 30080
		s.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8:1234:5678:9abc:def0:1234:5678")}
		s.ExternalPolicy = model.PolicyLocal
	}
	wrong := func(s *model.Service) {
		s.Problems = []model.Problem{{Object: model.ServiceObject(s.Name), Field: "spec.loadBalancerSourceRanges[0]",
			Reason: `"198.51.100.300/24" is not an IP prefix`, Remedy: "write an address and the length of the prefix, such as 192.0.2.0/24"}}
	}
	w.Sync(concat(
		app("default/web", "10.96.0.80", []string{"10.244.1.1", "10.244.2.1"}, wide),
		app("default/shop", "10.96.0.81", []string{"10.244.1.2"}),
		app("kube-system/metrics-of-a-very-long-name-that-nobody-can-remember", "10.96.0.82", []string{"10.244.1.3"}),
		app("idle/nothing", "10.96.0.99", nil),
		app("team/odd", "10.96.0.84", []string{"10.244.1.4"}, wrong),
		app("team/refused-by-the-kernel", "10.96.0.85", []string{"10.244.1.5"}),
	)...)
	for i := range steps {
		ago := time.Duration(steps-1-i) * step
		w.page.recorder.record(time.Now().Add(-ago), map[model.Name]services.Rates{
			{Namespace: "default", Name: "web"}:  {Connections: 20 + 10*math.Sin(float64(i)/9), Refused: services.Refusals{float64(i / 60)}},
			{Namespace: "default", Name: "shop"}: {Connections: float64(i % 30)},
		})
	}
	w.Change(app("default/web", "10.96.0.80", []string{"10.244.1.1", "10.244.2.1", "10.244.2.7"}, wide)...)
	return w
}

// layout is what a browser measures of a page.
type layout struct {
	Sideways []string // what is wider than its place
	Broken   []string // words in two lines
	Hidden   []string // states that are not in the window
	Small    []string // text of less than 11 pixels
	Alone    []string // tiles that are alone in their row, below others
	States   int
}

// measure returns a layout. Names, addresses and commands may be broken anywhere:
// the longest fit no phone.
const measure = `(() => {
	const out = {Sideways: [], Broken: [], Hidden: [], Small: [], Alone: [], States: 0};
	const name = e => e.tagName + (e.id ? "#" + e.id : "") + " " + e.textContent.trim().replace(/\s+/g, " ").slice(0, 40);
	if (document.documentElement.scrollWidth > innerWidth) out.Sideways.push("the page: " + document.documentElement.scrollWidth);
	for (const e of document.body.querySelectorAll("*")) {
		if (!e.getClientRects().length || e instanceof SVGElement || e.closest("pre, .skip")) continue;
		const clips = getComputedStyle(e).overflowX !== "visible";
		if (clips && e.scrollWidth > e.clientWidth + 1) out.Sideways.push(name(e));
	}
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		const node = texts.currentNode, parent = node.parentElement;
		if (!parent.getClientRects().length || parent.closest("pre, code, .chip, .skip")) continue;
		const size = parent instanceof SVGElement ? parent.getBoundingClientRect().height / 1.2 : parseFloat(getComputedStyle(parent).fontSize);
		if (node.data.trim() && size < 11) out.Small.push(size.toFixed(1) + " " + node.data.trim());
		for (const m of node.data.matchAll(/\S+/g)) {
			if (m[0].length > 20 || /[\/-]/.test(m[0])) continue;
			const range = document.createRange();
			range.setStart(node, m.index);
			range.setEnd(node, m.index + m[0].length);
			const lines = new Set([...range.getClientRects()].filter(r => r.width > 0).map(r => Math.round(r.top)));
			if (lines.size > 1) out.Broken.push(m[0] + " of " + node.data.trim());
		}
	}
	for (const e of document.querySelectorAll(".state, .sign")) {
		const is = e.getBoundingClientRect();
		out.States++;
		if (is.width === 0 || is.left < 0 || is.right > innerWidth) out.Hidden.push(name(e));
		for (let p = e.parentElement; p; p = p.parentElement) {
			const r = p.getBoundingClientRect();
			if (getComputedStyle(p).overflowX !== "visible" && (is.right > r.right + 1 || is.left < r.left - 1)) out.Hidden.push(name(e));
		}
	}
	const tiles = [...document.querySelectorAll(".tiles > *, .problems ul[class] > *")], top = e => Math.round(e.getBoundingClientRect().top);
	for (const e of tiles) {
		const row = [...e.parentElement.children].filter(o => top(o) === top(e)).length;
		const first = [...e.parentElement.children].filter(o => top(o) === top(e.parentElement.children[0])).length;
		if (row === 1 && first > 1) out.Alone.push(name(e));
	}
	return out;
})()`

// fitsEveryScreen checks phones, tablets and desktops.
func fitsEveryScreen(t *testing.T, b *browser.Browser) {
	w := crowdedWorld(t)
	address := w.serve()
	for _, width := range widths {
		tab := b.Open(t, address, browser.Light, browser.Size(width, 1900))
		for path, states := range map[string]int{"/": 7, "/service?namespace=default&name=web&from=outside": 8, "/service?namespace=team&name=odd": 4, "/service?namespace=team&name=gone": 3, "/map": 1, "/problems": 1, "/events": 1, "/nothing": 1} {
			tab.Go(address + path)
			got := browser.Eval[layout](tab, measure)
			got.check(t, fmt.Sprintf("%s at %d pixels", path, width))
			if got.States < states {
				t.Errorf("%s at %d pixels shows %d states, want %d", path, width, got.States, states)
			}
			shoot(t, tab, fmt.Sprintf("%d%s", width, path))
		}
	}
}

func (l *layout) check(t *testing.T, where string) {
	t.Helper()
	for what, found := range map[string][]string{"is wider than its place": l.Sideways, "is a broken word": l.Broken,
		"is a state that cannot be seen": l.Hidden, "is too small": l.Small, "is alone in its row": l.Alone} {
		if len(found) > 0 {
			t.Errorf("%s: %s: %q", where, what, found)
		}
	}
}

// fitsEveryCluster checks the overview and the map of few and many Services. What is broken is
// on the first screen.
func fitsEveryCluster(t *testing.T, b *browser.Browser) {
	for _, services := range []int{0, 7, 5000} {
		w := newWorld(t)
		if services == 0 {
			w.Sync()
		} else {
			w.Sync(append(many(services-1), app("zoo/broken", "10.97.0.1", nil)...)...)
		}
		address := w.serve()
		for _, width := range widths {
			tab := b.Open(t, address, browser.Light, browser.Size(width, heights[width]))
			for _, path := range []string{"/", "/map"} {
				tab.Go(address + path)
				where := fmt.Sprintf("%s of %d Services at %d pixels", path, services, width)
				got := browser.Eval[layout](tab, measure)
				got.check(t, where)
				onScreen := browser.Eval[int](tab, `[...document.querySelectorAll("main a[href*='name=broken']")].map(e => e.getBoundingClientRect())
					.filter(r => r.width > 0 && r.top >= 0 && r.bottom <= innerHeight).length`)
				if (onScreen > 0) != (services > 0) {
					t.Errorf("%s: the broken one is on the first screen %d times", where, onScreen)
				}
				shoot(t, tab, fmt.Sprintf("%d-%d%s", services, width, path))
			}
			tab.WantNoErrors()
		}
	}
}

// routeIsReadable checks that no text of the way of a connection is on another text.
func routeIsReadable(t *testing.T, b *browser.Browser) {
	address := crowdedWorld(t).serve()
	for _, width := range widths {
		tab := b.Open(t, address, browser.Size(width, heights[width]))
		for _, path := range []string{"/service?namespace=default&name=web&from=outside", "/service?namespace=default&name=web&from=203.0.113.9",
			"/service?namespace=default&name=web&from=pod", "/service?namespace=idle&name=nothing"} {
			tab.Go(address + path)
			got := browser.Eval[struct {
				Texts    int
				Overlaps []string
			}](tab, `(() => {
				const texts = [...document.querySelectorAll("#answers :is(h3, .verdict, .way span, .stop, .problem, th, summary)")].filter(e => e.getClientRects().length);
				const out = {Texts: texts.length, Overlaps: []};
				texts.forEach((a, i) => texts.slice(i + 1).forEach(b => {
					const x = a.getBoundingClientRect(), y = b.getBoundingClientRect();
					if (Math.min(x.right, y.right) - Math.max(x.left, y.left) > 1 && Math.min(x.bottom, y.bottom) - Math.max(x.top, y.top) > 1)
						out.Overlaps.push(a.innerText + " / " + b.innerText);
				}));
				return out;
			})()`)
			if got.Texts < 5 || len(got.Overlaps) > 0 {
				t.Errorf("%s at %d pixels: of %d texts these overlap: %q", path, width, got.Texts, got.Overlaps)
			}
		}
	}
}

func mapLeadsToServices(t *testing.T, b *browser.Browser) {
	tab := b.Open(t, shopWorld(t).serve())
	tab.Click(`//a[. = "Show as a map"]`)
	tab.Wait(`document.querySelectorAll("#map .sq").length === 4`)
	looks := browser.Eval[[]string](tab, `["refused", "works"].map(w => getComputedStyle(document.querySelector("#map .sq." + w)).backgroundImage)`)
	if looks[0] == looks[1] {
		t.Errorf("only colours tell verdicts apart: %q", looks)
	}
	tab.Click(`#map a[href*="name=nothing"]`)
	tab.Wait(`document.querySelector("h1")?.innerText === "nothing"`)
	tab.WantNoErrors()
}

// shoot takes a screenshot if that is wanted.
func shoot(t *testing.T, tab *browser.Tab, name string) {
	t.Helper()
	if *shots == "" {
		return
	}
	name = strings.NewReplacer("/", "-", "?", "-", "&", "-", "=", "-").Replace(name) + ".png"
	if err := os.WriteFile(filepath.Join(*shots, name), tab.Screenshot(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// stateFirst checks that a phone shows the state of a Service right beside or below
// its name, before all else.
func stateFirst(t *testing.T, b *browser.Browser) {
	tab := b.Open(t, crowdedWorld(t).serve(), browser.Size(widths[0], 1000))
	late := browser.Eval[[]string](tab, `[...document.querySelectorAll("#services tbody tr")].filter(row => {
		const top = e => e.getBoundingClientRect().top;
		const state = top(row.querySelector(".is .state")), name = top(row.querySelector("th"));
		return state > name + row.querySelector("th").getBoundingClientRect().height
			|| [...row.cells].some(c => c.tagName === "TD" && !c.matches(".is") && top(c) < state);
	}).map(row => row.id)`)
	if len(late) > 0 {
		t.Errorf("the state is not first in %q", late)
	}
	tab.WantNoErrors()
}
