package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"sluice/internal/testkit"
)

// Browser is a running Chromium.
type Browser struct{ ctx context.Context }

// Start starts a Chromium that ends with the test.
func Start(t testing.TB) *Browser {
	t.Helper()
	testkit.NotShort(t, "it starts a browser")
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v; 'make test' installs it, or 'apt-get install chromium'", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(profile(t)), chromedp.WindowSize(1280, 1000),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.WSURLReadTimeout(testkit.Scaled(testkit.Timeout)),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("no-proxy-server", true),
	)
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // in good order, if it still can
		end()
	})
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return &Browser{ctx}
}

// profile makes a directory for a fresh browser. Processes of the browser may
// outlive it briefly, and write there while it is removed.
func profile(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := testkit.Poll(testkit.Timeout, func() error { return os.RemoveAll(dir) }); err != nil {
			t.Errorf("remove the profile of the browser: %v", err)
		}
	})
	return dir
}

// Setting configures a tab.
type Setting func(context.Context) error

// NoScript disables JavaScript.
func NoScript(ctx context.Context) error {
	_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	return err
}

// Dark makes a tab prefer dark pages.
func Dark(ctx context.Context) error { return prefer(ctx, "dark") }

// Light makes a tab prefer light pages.
func Light(ctx context.Context) error { return prefer(ctx, "light") }

func prefer(ctx context.Context, scheme string) error {
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	return err
}

// Size sets the size of the window in pixels.
func Size(width, height int64) Setting {
	return func(ctx context.Context) error { return chromedp.Do(ctx, chromedp.EmulateViewport(width, height)) }
}

// Tab is a page in the browser.
type Tab struct {
	t   testing.TB
	ctx context.Context

	mu     sync.Mutex
	errors []string
}

// Open opens a page in its own tab, which is closed with the test.
func (b *Browser) Open(t testing.TB, address string, settings ...Setting) *Tab {
	t.Helper()
	ctx, end := chromedp.NewContext(b.ctx)
	t.Cleanup(end)
	tab := &Tab{t: t, ctx: ctx}
	tab.Do(chromedp.Navigate("about:blank"))
	messages := chromedp.Console(ctx) // from now on
	go func() {
		for m, err := range messages {
			if err != nil {
				return // the tab is closed
			}
			tab.note(m)
		}
	}()
	for _, set := range settings {
		if err := set(ctx); err != nil {
			t.Fatalf("set up the tab: %v", err)
		}
	}
	tab.Go(address)
	return tab
}

// Go navigates the tab to another page.
func (tab *Tab) Go(address string) {
	tab.t.Helper()
	tab.Do(chromedp.Navigate(address))
}

// note records errors in the page: exceptions, violations of the content security
// policy, failed loads.
func (tab *Tab) note(m chromedp.ConsoleMessage) {
	if m.Type != chromedp.ConsoleError && m.Type != chromedp.ConsoleException {
		return
	}
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.errors = append(tab.errors, fmt.Sprintf("%s: %s %s", m.Type, m.Text, m.URL))
}

// WantNoErrors fails the test if there were errors in the page.
func (tab *Tab) WantNoErrors() {
	tab.t.Helper()
	tab.mu.Lock()
	defer tab.mu.Unlock()
	if len(tab.errors) > 0 {
		tab.t.Errorf("the browser complains:\n%s", strings.Join(tab.errors, "\n"))
	}
}

// Do runs actions in the tab.
func (tab *Tab) Do(steps ...chromedp.Action[chromedp.Void]) {
	tab.t.Helper()
	await(tab.t, func() (chromedp.Void, error) { return chromedp.Void{}, chromedp.Do(tab.ctx, steps...) })
}

// Eval returns the value of a JavaScript expression in the tab, even if the page
// may not run scripts.
func Eval[T any](tab *Tab, expression string) T {
	tab.t.Helper()
	return await(tab.t, func() (T, error) { return chromedp.Run(tab.ctx, chromedp.Evaluate[T](expression)) })
}

func await[T any](t testing.TB, call func() (T, error)) T {
	t.Helper()
	value, err := within(call)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return value
}

// within limits the time of a call. The context of a tab cannot have a timeout: the
// tab would be closed with it.
func within[T any](call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := call()
		done <- result{value, err}
	}()
	ctx, cancel := testkit.WithTimeout(context.Background(), testkit.Timeout)
	defer cancel()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return *new(T), fmt.Errorf("the browser does not get it done: %w", context.Cause(ctx))
	}
}

// Wait waits until a JavaScript expression is true in a fully loaded page. During
// navigation an expression may fail, or there may be no page: that counts as not
// true yet.
func (tab *Tab) Wait(expression string) {
	tab.t.Helper()
	err := testkit.Poll(testkit.Timeout, func() error {
		holds, err := within(func() (bool, error) {
			return chromedp.Run(tab.ctx, chromedp.Evaluate[bool](`document.readyState === "complete" && Boolean(`+expression+")"))
		})
		if err == nil && !holds {
			err = errors.New("it is false")
		}
		return err
	})
	if err != nil {
		tab.t.Fatalf("%s does not come true (%v). The page shows:\n%s", expression, err, tab.Text("body"))
	}
}

// Text returns the visible text of the element that a selector matches.
func (tab *Tab) Text(selector string) string {
	tab.t.Helper()
	return Eval[string](tab, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// Click clicks on the element that a selector or XPath matches.
func (tab *Tab) Click(selector string) {
	tab.t.Helper()
	tab.Do(chromedp.Click(selector))
}

// Type types into the element that a selector matches.
func (tab *Tab) Type(selector, keys string) {
	tab.t.Helper()
	tab.Do(chromedp.SendKeys(chromedp.CSS(selector), keys))
}

// Press presses keys, wherever the focus is.
func (tab *Tab) Press(keys string) {
	tab.t.Helper()
	tab.Do(chromedp.KeyEvent(keys))
}

// Screenshot returns a screenshot of the window, as PNG.
func (tab *Tab) Screenshot() []byte {
	tab.t.Helper()
	return await(tab.t, func() ([]byte, error) { return chromedp.Run(tab.ctx, chromedp.CaptureScreenshot()) })
}
