package web

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/test/browser"
)

// rows returns the visible names in the list.
func rows(tab *browser.Tab) []string {
	return browser.Eval[[]string](tab, `[...document.querySelectorAll("#services tbody th")].map(e => e.innerText)`)
}

// TestInABrowser uses one browser for all checks, because it is slow to start.
func TestInABrowser(t *testing.T) {
	b := browser.Start(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *browser.Browser)
	}{
		{"the page loads and lists Services", loads},
		{"typing searches", searches},
		{"a click drills down, and explains for the chosen client", drillsDown},
		{"a connection is sent, and what became of it stays", sendsOne},
		{"changes show without a reload, and leave the focus alone", updatesLive},
		{"a proxy that is gone is noticed, and one that is back", noticesAbsence},
		{"a start that takes long shows its progress", showsProgress},
		{"what fails is on top", failsOnTop},
		{"everything but live updates works without JavaScript", worksWithoutScript},
		{"the keyboard is enough", worksByKeyboard},
		{"light and dark are readable", isReadable},
		{"phones, tablets and desktops show all of it", fitsEveryScreen},
		{"no, few and many Services fit every screen, and a broken one is on the first", fitsEveryCluster},
		{"texts of the route do not overlap", routeIsReadable},
		{"the map leads to Services", mapLeadsToServices},
		{"a phone shows the state of a Service first", stateFirst},
		{"10000 Services stay usable", staysUsable},
		{"hostile names do no harm", survivesHostileNames},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, b) })
	}
}

func loads(t *testing.T, b *browser.Browser) {
	tab := b.Open(t, shopWorld(t).serve())
	if diff := cmp.Diff([]string{"idle/nothing", "default/shop", "default/web", "kube-system/dns"}, rows(tab)); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if got := tab.Text("#sign"); got != "Serving" {
		t.Errorf("sign is %q", got)
	}
	if buttons := browser.Eval[int](tab, `document.querySelectorAll("#search button").length`); buttons != 0 {
		t.Error("a field that searches while typing has a button")
	}
	points := browser.Eval[int](tab, `document.querySelectorAll("#plot circle").length`)
	if points != 1 {
		t.Errorf("%d changes are in the plot, want 1", points)
	}
	tab.WantNoErrors()
}

func searches(t *testing.T, b *browser.Browser) {
	address := shopWorld(t).serve()
	tab := b.Open(t, address)
	browser.Eval[int](tab, "window.mark = 1")
	tab.Type("#search input", "10.96.0.81")
	tab.Wait(`document.querySelectorAll("#services tbody tr").length === 1`)
	if diff := cmp.Diff([]string{"default/shop"}, rows(tab)); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	tab.Wait("location.search === '?q=10.96.0.81' && window.mark === 1")
	tab.Type("#search select[name=namespace]", "kube-system")
	tab.Wait(`location.search === '?q=10.96.0.81&namespace=kube-system' && !document.querySelector("#services tbody tr")`)
	// The address leads to the same list.
	if diff := cmp.Diff([]string{"default/shop"}, rows(b.Open(t, address+"/?q=10.96.0.81"))); diff != "" {
		t.Errorf("list at the address (-want +got):\n%s", diff)
	}
	tab.WantNoErrors()
}

func drillsDown(t *testing.T, b *browser.Browser) {
	tab := b.Open(t, shopWorld(t).serve())
	tab.Click(`//a[contains(., "web")]`)
	tab.Wait(`document.querySelector("h1")?.innerText === "web"`)
	if text := tab.Text("#frontends"); !strings.Contains(text, "10.96.0.80:80/TCP") || !strings.Contains(text, ":30080/TCP") {
		t.Errorf("frontends are:\n%s", text)
	}
	if text := tab.Text("#answers"); !strings.Contains(text, "10.244.2.1:8080") {
		t.Errorf("answers are:\n%s", text)
	}
	tab.Click(`//a[. = "from outside"]`)
	tab.Wait(`location.search.endsWith("from=outside")`)
	tab.Wait(`document.querySelector("#clients [aria-current]").innerText === "from outside"`)
	tab.Wait(`document.querySelector(".explain").textContent.includes("from outside")`)
	tab.Type("#from input[name=from]", "10.244.1.9"+kb.Enter)
	tab.Wait(`document.querySelector(".explain")?.textContent.includes("10.244.1.9 (pod)")`)
	tab.Click(".crumbs a")
	tab.Wait(`document.querySelectorAll("#services tbody tr").length === 4`)
	tab.WantNoErrors()
}

func updatesLive(t *testing.T, b *browser.Browser) {
	w := shopWorld(t)
	count := func(n int64) { w.Dataplane.Set(func(b *enginetest.Behaviour) { b.Connections[key("10.96.0.80")] = n }) }
	count(1)
	address := w.serve()
	tab := b.Open(t, address)
	browser.Eval[int](tab, `[...document.querySelectorAll("#services tbody a")].find(a => a.innerText === "default/web").focus(), window.mark = 1`)
	w.Change(app("another/one", "10.96.0.77", []string{"10.244.1.7"})...)
	tab.Wait(`document.querySelector("#services").innerText.includes("another/one")`)
	count(1e6)
	tab.Wait(`Number.parseInt([...document.querySelectorAll("#services tr")].find(r => r.innerText.startsWith("default/web")).cells[3].innerText) > 0`)
	if focus := browser.Eval[string](tab, "document.activeElement.innerText"); focus != "default/web" {
		t.Errorf("the focus went to %q", focus)
	}
	w.Change(model.DeleteService{Name: model.Name{Namespace: "another", Name: "one"}})
	tab.Wait(`!document.querySelector("#services").innerText.includes("another/one")`)
	tab.Wait("window.mark === 1")

	service := b.Open(t, address+"/service?namespace=default&name=web")
	service.Wait(`!document.querySelector("details").open`)
	service.Click("summary")
	w.Change(app("default/web", "10.96.0.80", []string{"10.244.1.1", "10.244.2.55"})...)
	service.Wait(`document.querySelector("#answers").innerText.includes("10.244.2.55:8080")`)
	service.Wait(`document.querySelector("details").open`) // as it was left
	tab.WantNoErrors()
	service.WantNoErrors()
}

func noticesAbsence(t *testing.T, b *browser.Browser) {
	w := shopWorld(t)
	serve := func(at string) (*http.Server, net.Addr) {
		socket, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: w.page}
		go server.Serve(socket)
		return server, socket.Addr()
	}
	server, at := serve("127.0.0.1:0")
	tab := b.Open(t, "http://"+at.String())
	tab.Wait(`document.querySelector("#lost").hidden`)
	look := func() [3]string {
		return browser.Eval[[3]string](tab, `[document.querySelector("#sign").innerText, getComputedStyle(document.querySelector("#sign")).color, getComputedStyle(document.querySelector("main")).opacity]`)
	}
	alive := look()
	server.Close()
	tab.Wait(`!document.querySelector("#lost").hidden`)
	tab.Wait(`/last seen at \d\d:\d\d:\d\d UTC/.test(document.querySelector("#lost").innerText)`)
	dead := look()
	if dead[0] != "No answer" || dead[1] == alive[1] || dead[2] == alive[2] {
		t.Errorf("a proxy that is gone looks like %q, one that is there like %q", dead, alive)
	}
	shoot(t, tab, "dead")
	server, _ = serve(at.String())
	t.Cleanup(func() { server.Close() })
	tab.Wait(`document.querySelector("#lost").hidden`)
	if again := look(); again != alive {
		t.Errorf("a proxy that is back looks like %q, want %q", again, alive)
	}
}

func showsProgress(t *testing.T, b *browser.Browser) {
	w := newWorld(t)
	hold := make(chan struct{})
	w.Dataplane.Set(func(b *enginetest.Behaviour) { b.Hold = hold; b.Progress.Done, b.Progress.Total = 250, 1000 })
	tab := b.Open(t, w.serve())
	if got := tab.Text("#note"); !strings.Contains(got, "Waiting for test") {
		t.Errorf("note is %q", got)
	}
	w.Source.Update(app("default/web", "10.96.0.80", nil)...)
	w.Source.Synced()
	tab.Wait(`document.querySelector("progress")?.position === 0.25`)
	close(hold)
	tab.Wait(`!document.querySelector("progress") && document.querySelector("#sign").innerText === "Serving"`)
	tab.WantNoErrors()
}

func failsOnTop(t *testing.T, b *browser.Browser) {
	w := newWorld(t)
	w.Dataplane.Set(func(b *enginetest.Behaviour) {
		b.Refuse[netip.MustParseAddr("10.96.0.80")] = errors.New("no room left")
	})
	w.Sync(app("default/web", "10.96.0.80", []string{"10.244.1.1"})...)
	tab := b.Open(t, w.serve())
	tab.Wait(`document.querySelector("#problems").innerText.includes("no room left")`)
	tab.Wait(`document.querySelector("#problems").getBoundingClientRect().bottom <= document.querySelector("#services").getBoundingClientRect().top`)
	w.Dataplane.Set(func(b *enginetest.Behaviour) { clear(b.Refuse) })
	tab.Wait(`!document.querySelector("#problems")`)
	tab.WantNoErrors()
}

func worksWithoutScript(t *testing.T, b *browser.Browser) {
	tab := b.Open(t, shopWorld(t).serve(), browser.NoScript)
	if len(rows(tab)) != 4 {
		t.Errorf("list is %q", rows(tab))
	}
	tab.Wait(`document.querySelector("#search button").getClientRects().length === 1`)
	if text := tab.Text("footer"); !strings.Contains(text, "Reload the page to see changes") {
		t.Errorf("footer is %q", text)
	}
	tab.Type("#search input", "web"+kb.Enter)
	tab.Wait(`new URLSearchParams(location.search).get("q") === "web"`) // empty fields are there as well
	if diff := cmp.Diff([]string{"default/web"}, rows(tab)); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	tab.Click("#services tbody a")
	tab.Wait(`document.querySelector("h1")?.innerText === "web"`)
	tab.Type("#from input[name=from]", "203.0.113.9"+kb.Enter)
	tab.Wait(`document.querySelector(".explain")?.textContent.includes("203.0.113.9 (outside)")`)
	tab.WantNoErrors()
}

func worksByKeyboard(t *testing.T, b *browser.Browser) {
	tab := b.Open(t, shopWorld(t).serve())
	tab.Press("/")
	tab.Wait(`document.activeElement.matches("#search input")`)
	tab.Press("shop")
	tab.Wait(`document.querySelectorAll("#services tbody tr").length === 1`)
	for range 20 { // past the button and the choices
		tab.Press(kb.Tab)
		if browser.Eval[bool](tab, `document.activeElement.matches("#services tbody a")`) {
			break
		}
	}
	if outline := browser.Eval[string](tab, `getComputedStyle(document.activeElement).outlineStyle`); outline != "solid" {
		t.Errorf("the focus cannot be seen: outline is %q", outline)
	}
	tab.Press(kb.Enter)
	tab.Wait(`document.querySelector("h1")?.innerText === "shop"`)
	tab.WantNoErrors()
}

// faint returns texts whose contrast with the background is less than 4.5.
const faint = `(() => {
	const numbers = c => c.match(/[\d.]+/g).map(Number);
	const light = c => numbers(c).slice(0, 3).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
	const behind = e => { for (; e; e = e.parentElement) {
		const c = getComputedStyle(e).backgroundColor;
		if ((numbers(c)[3] ?? 1) > 0) return c;
	} return "rgb(255, 255, 255)"; };
	const out = [];
	for (const e of document.body.querySelectorAll("*")) {
		if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length) continue;
		const style = getComputedStyle(e);
		const [a, b] = [light(e instanceof SVGElement ? style.fill : style.color), light(behind(e))].sort((a, b) => b - a);
		const contrast = (a + .05) / (b + .05);
		if (contrast < 4.5) out.push(contrast.toFixed(2) + " " + e.textContent.trim().slice(0, 40));
	}
	return out;
})()`

func isReadable(t *testing.T, b *browser.Browser) {
	w := hostileWorld(t) // has all kinds of signs
	w.Change(concat(app("default/web", "10.96.1.1", []string{"10.244.1.1"}), app("default/idle", "10.96.1.2", nil))...)
	address := w.serve()
	var backs []string
	for _, scheme := range []browser.Setting{browser.Light, browser.Dark} {
		tab := b.Open(t, address, scheme)
		for _, path := range []string{"/", "/?q=default", "/service?namespace=default&name=web", "/service?namespace=default&name=idle", "/map"} {
			tab.Go(address + path)
			if pale := browser.Eval[[]string](tab, faint); len(pale) > 0 {
				t.Errorf("on %s these are hard to read: %q", path, pale)
			}
			backs = append(backs, browser.Eval[string](tab, "getComputedStyle(document.body).backgroundColor"))
		}
		tab.WantNoErrors()
	}
	if len(slices.Compact(backs)) != 2 {
		t.Errorf("backgrounds are %q, want one for light and one for dark", backs)
	}
}

func staysUsable(t *testing.T, b *browser.Browser) {
	w := newWorld(t)
	w.Sync(many(10000)...)
	tab := b.Open(t, w.serve())
	nodes := browser.Eval[int](tab, `document.querySelectorAll("*").length`)
	bytes := browser.Eval[int](tab, `performance.getEntriesByType("navigation")[0].decodedBodySize`)
	if n := len(rows(tab)); n != rowsPerPage || nodes > 2000 || bytes > 64<<10 {
		t.Errorf("page has %d rows, %d elements, %d bytes", n, nodes, bytes)
	}
	if text := tab.Text("#pager"); !strings.Contains(text, "of 10\u202f000") {
		t.Errorf("pager is %q", text)
	}
	w.Change(app("another/one", "10.97.0.1", nil)...)
	tab.Wait(`document.querySelector("#services tbody tr").innerText.startsWith("another/one")`)
	tab.Click("#pager [rel=next]")
	tab.Wait(`location.search === "?page=2" && document.querySelector("#pager").innerText.includes("51–100")`)
	tab.Type("#search input", "service-04321")
	tab.Wait(`document.querySelectorAll("#services tbody tr").length === 1`)
	tab.Click("#services tbody a")
	tab.Wait(`document.querySelector("h1")?.innerText === "service-04321"`)
	tab.WantNoErrors()
}

func survivesHostileNames(t *testing.T, b *browser.Browser) {
	w := hostileWorld(t)
	address := w.serve()
	paths := []string{"/"}
	for _, text := range hostile {
		paths = append(paths, query{Text: text, Page: 1}.Link(), serviceLink(model.Name{Namespace: "ns" + text, Name: text}))
	}
	tab := b.Open(t, address)
	for _, path := range paths {
		tab.Go(address + path)
		found := browser.Eval[struct {
			Harmed, Wide   bool
			Scripts, Links []string
		}](tab, `({
			Harmed: "harmed" in window,
			Wide: document.documentElement.scrollWidth > innerWidth,
			Scripts: [...document.scripts].map(s => s.getAttribute("src")),
			Links: [...document.links].map(a => a.origin).filter(o => o !== origin),
		})`)
		if found.Harmed || found.Wide || len(found.Links) > 0 || fmt.Sprint(found.Scripts) != "[/page/page.js]" {
			t.Errorf("%s: %+v", path, found)
		}
	}
	tab.WantNoErrors()
}
