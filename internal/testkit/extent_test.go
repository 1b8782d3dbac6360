package testkit

import "testing"

func TestExtents(t *testing.T) {
	t.Setenv(ExtentVariable, "")
	ordinary := "ordinary"
	if testing.Short() {
		ordinary = "short"
	}
	for _, tt := range []struct{ variable, want string }{
		{"", ordinary},
		{"full", map[bool]string{true: "short", false: "full"}[testing.Short()]},
		{"fulll", ordinary},
	} {
		t.Setenv(ExtentVariable, tt.variable)
		if got := Extent("short", "ordinary", "full"); got != tt.want {
			t.Errorf("with %s=%s: %s, want %s", ExtentVariable, tt.variable, got, tt.want)
		}
	}
}

func TestSkips(t *testing.T) {
	skipped := func(skip func(testing.TB)) (out bool) {
		t.Run("", func(t *testing.T) {
			defer func() { out = t.Skipped() }()
			skip(t)
		})
		return out
	}
	t.Setenv(ExtentVariable, "")
	t.Setenv(GuestVariable, "")
	if skipped(func(t testing.TB) { NotInGuest(t, "slow") }) {
		t.Error("skipped outside of a guest")
	}
	if !skipped(func(t testing.TB) { OnlyFull(t, "slow") }) {
		t.Error("ran although not everything was asked for")
	}
	if skipped(func(t testing.TB) { NotShort(t, "slow") }) != testing.Short() {
		t.Error("skipped in the wrong extent")
	}
	t.Setenv(GuestVariable, "1")
	if !skipped(func(t testing.TB) { NotInGuest(t, "slow") }) {
		t.Error("ran in a guest")
	}
}
