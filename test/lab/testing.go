//go:build linux

package lab

// T is the part of *testing.T that Start needs.
type T interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Start builds a lab for a test and removes it when the test is over, however
// it ends.
func Start(t T) *Lab {
	t.Helper()
	return started(t, New)
}

func started(t T, build func() (*Lab, error)) *Lab {
	t.Helper()
	if err := Sweep(); err != nil {
		t.Errorf("remove leftovers of earlier labs: %v", err)
	}
	l, err := build()
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("remove lab: %v", err)
		}
	})
	return l
}
