package lab_test

import (
	"os"
	"testing"

	"sluice/internal/testkit"
)

// TestMain has some labs run side by side: mostly they wait for answers that do not come, and
// for processes that start.
func TestMain(m *testing.M) {
	testkit.Overlap(3)
	os.Exit(m.Run())
}
