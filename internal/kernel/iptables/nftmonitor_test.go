//go:build linux

package iptables

import "testing"

// Some notifications of a transaction that was being committed when listening began
// may have been missed.
func TestIncompleteNotificationsAreUnknown(t *testing.T) {
	s := &nftMonitor{heard: map[uint32]bool{5: false, 6: false, 7: true, 9: false}, joinedAt: 5}
	for _, tt := range []struct {
		name     string
		from, to uint32
		want     Verdict
	}{
		{"no write", 6, 6, Harmless},
		{"received completely", 5, 6, Harmless},
		{"under way when listening began", 4, 6, Unknown},
		{"touched ours", 5, 7, Harmful},
		{"not received", 6, 8, Unknown},
	} {
		if got := s.judgeNow(tt.from, tt.to); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
