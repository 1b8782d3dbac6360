package host

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/utils/clock"

	"sluice/internal/netns/netnstest"
)

func TestTheSecondProxyOfANodeWaitsForTheFirst(t *testing.T) {
	netnstest.Enter(t)
	lines := make(chan string, 16)
	logger := funcr.New(func(_, args string) { lines <- args }, funcr.Options{})
	first, err := TakeSeat(t.Context(), logger, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := TakeSeat(short, logger, clock.RealClock{}); err == nil {
		t.Fatal("two have the seat")
	}
	if line := <-lines; !strings.Contains(line, "Another proxy") || !strings.Contains(line, fmt.Sprintf(`"pid"=%d`, os.Getpid())) {
		t.Errorf("it does not say who has the seat: %s", line)
	}
	if err := first.Leave(); err != nil {
		t.Fatal(err)
	}
	second, err := TakeSeat(t.Context(), logger, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Leave(); err != nil {
		t.Fatal(err)
	}
}
