package web

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sluice/internal/answer/status"
	"sluice/internal/engine/enginetest"
	"sluice/internal/model"
	"sluice/internal/plan"
	"sluice/test/browser"
)

var update = flag.Bool("update", false, "renew the screenshots of the documentation")

// The screenshots, and what they were made from.
const (
	picturesDir = "../../../docs"
	digestsFile = picturesDir + "/pictures.sum"
)

// picture is a screenshot of the documentation.
type picture struct {
	file, path    string
	world         func(*testing.T) *world
	scheme        browser.Setting
	width, height int64
}

var pictures = []picture{
	{"page.png", "/", galleryWorld, browser.Light, 1280, 1460},
	{"page-service.png", "/service?namespace=shop&name=cart", galleryWorld, browser.Dark, 1280, 1238},
	{"page-phone.png", "/", galleryWorld, browser.Light, 390, 1500},
	{"page-map.png", "/map", bigWorld, browser.Light, 1280, 800},
}

// TestPicturesAreUpToDate compares what a browser would show now with what the
// screenshots were made from. Pixels differ from one browser to the next, so that the
// texts are compared, of which each byte is the same every time.
func TestPicturesAreUpToDate(t *testing.T) {
	var b *browser.Browser
	if *update {
		b = browser.Start(t)
	}
	var digests bytes.Buffer
	for _, p := range pictures {
		w := p.world(t)
		html, css := w.get(p.path).Body.Bytes(), w.get("/page/page.css").Body.Bytes()
		file := filepath.Join(picturesDir, p.file)
		if *update {
			tab := b.Open(t, w.serve()+p.path, p.scheme, browser.Size(p.width, p.height))
			tab.WantNoErrors()
			if err := os.WriteFile(file, tab.Screenshot(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		png, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		made := sha256.Sum256(fmt.Appendf(nil, "%d %d %s %s", p.width, p.height, html, css))
		fmt.Fprintf(&digests, "%s %x %x\n", p.file, made[:12], sha256.Sum256(png))
	}
	if *update {
		if err := os.WriteFile(digestsFile, digests.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(digestsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, digests.Bytes()) {
		t.Errorf("the page has changed since the screenshots in docs were made: renew them with 'make pictures'.\nThey are of\n%sand the page is\n%s", want, &digests)
	}
}

// Two worlds must look the same to the byte, or the test above is of no use.
func TestPicturesCanBeRepeated(t *testing.T) {
	for _, p := range pictures {
		one, another := p.world(t), p.world(t)
		if a, b := one.get(p.path).Body.String(), another.get(p.path).Body.String(); a != b {
			t.Errorf("%s differs:\n%s\n%s", p.path, a, b)
		}
	}
}

// galleryWorld is a shop in its 16th minute. Nothing in it depends on the time of day
// or the speed of the machine.
func galleryWorld(t *testing.T) *world {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC))
	w := newWorldAt(t, clock, func(o *Options) {
		report := o.Status
		o.Status = func() *status.Report {
			r := report()
			r.Version, r.ModeReason = "v0.1.0", ""
			for i := range r.Changes { // the clock stands still while they are made
				r.Changes[i].Latency = 0.0007 * (1 + 3*math.Abs(math.Sin(float64(5*i))))
			}
			return r
		}
	})
	w.answers = silent(clock.Now().Add(13*time.Minute), 67, "10.244.2.10")
	at := func(addr string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(addr)} }
	external := func(s *model.Service) {
		s.Ports[0].NodePort, s.LoadBalancerIPs, s.ExternalPolicy = 30080, at("198.51.100.10"), model.PolicyLocal
	}
	wrong := func(s *model.Service) {
		s.LoadBalancerIPs, s.Filtered, s.SourceRanges = at("198.51.100.11"), true, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		s.Problems = []model.Problem{{Object: model.Object{Kind: "Service", Namespace: "shop", Name: "partners"}, Field: "spec.loadBalancerSourceRanges[1]",
			Reason: `"198.51.100.300/24" is not a range of IP addresses`, Remedy: "write an address and a length, such as 192.0.2.0/24"}}
	}
	storefront := func(endpoints ...string) []model.Event {
		return app("shop/storefront", "10.96.12.6", endpoints, external)
	}
	w.Sync(concat(
		app("data/postgres", "10.96.20.5", []string{"10.244.2.20"}),
		app("kube-system/dns", "10.96.0.10", []string{"10.244.1.2", "10.244.2.2"}),
		app("shop/cart", "10.96.12.7", []string{"10.244.1.10", "10.244.2.10", "10.244.1.11"}),
		app("shop/partners", "10.96.12.9", []string{"10.244.1.12"}, wrong),
		app("shop/search", "10.96.12.8", []string{"10.244.1.13", "10.244.2.13"}),
		storefront("10.244.1.14", "10.244.2.14"),
		app("staging/batch-old", "10.96.30.3", nil),
	)...)
	traffic := map[plan.Key]float64{key("10.96.20.5"): 7, key("10.96.0.10"): 12, key("10.96.12.7"): 9, key("10.96.12.8"): 24, key("10.96.12.6"): 31, key("198.51.100.10"): 18}
	connections := map[plan.Key]float64{}
	for i := range steps + 3 {
		w.Dataplane.Set(func(b *enginetest.Behaviour) {
			for k, rate := range traffic {
				connections[k] += 10 * rate * (1 + 0.4*math.Sin(float64(i)/8+rate) + 0.15*math.Sin(float64(3*i)+rate))
				b.Connections[k] = int64(connections[k])
			}
			idle := key("10.96.30.3")
			b.Connections[idle], b.Refused = 0, map[plan.Key]int64{idle: int64(max(0, i-55) * 15)}
		})
		switch {
		case i == 30:
			w.Change(storefront("10.244.1.14", "10.244.2.14", "10.244.1.15")...)
		case i == 68:
			w.Change(storefront("10.244.1.14", "10.244.2.16", "10.244.1.15")...)
		case i%13 == 5:
			w.Change(app("shop/cart", "10.96.12.7", []string{"10.244.1.10", "10.244.2.10", fmt.Sprintf("10.244.1.1%d", i%2+1)})...)
		}
		w.page.record(t.Context())
		if i < steps+2 { // the last step is now
			clock.Step(step)
		}
	}
	return w
}

// bigWorld is a node with 1,200 Services, a few of which are broken.
func bigWorld(t *testing.T) *world {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC))
	w := newWorldAt(t, clock, func(o *Options) {
		report := o.Status
		o.Status = func() *status.Report {
			r := report()
			r.Version, r.ModeReason = "v0.1.0", ""
			return r
		}
	})
	namespaces := []string{"billing", "catalog", "checkout", "data", "identity", "kube-system", "logistics", "monitoring", "payments", "search", "shop", "staging", "storefront", "warehouse"}
	traffic := map[plan.Key]float64{}
	var events []model.Event
	var dead []string
	for i := range 1200 {
		at := func(net byte) string { return netip.AddrFrom4([4]byte{10, net, byte(i >> 8), byte(i)}).String() }
		endpoints := []string{at(244), at(245)}
		traffic[key(at(96))] = 900 / math.Pow(float64(1+i*7919%1200), 1.1)
		switch {
		case i == 401:
			dead = append(dead, endpoints...)
		case i%250 == 77:
			dead = append(dead, endpoints[0])
		case i%180 == 120:
			endpoints = nil
		}
		name := fmt.Sprintf("%s/service-%03d", namespaces[int(float64(len(namespaces))*math.Pow(float64(i*31%1200)/1200, 1.7))], i)
		events = append(events, app(name, at(96), endpoints)...)
	}
	w.answers = silent(clock.Now(), 67, dead...)
	w.Sync(events...)
	count := func(seconds float64) {
		w.Dataplane.Set(func(b *enginetest.Behaviour) {
			for k, rate := range traffic {
				b.Connections[k] = 1 + int64(rate*seconds)
			}
		})
	}
	count(0)
	w.get("/map")
	clock.Step(step)
	count(step.Seconds())
	return w
}
