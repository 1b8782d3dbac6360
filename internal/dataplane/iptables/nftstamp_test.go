package iptables

import "testing"

// Of a transaction that was under way when listening began, the notices about our chains
// may have been missed.
func TestOnlyWhatWasHeardWholeIsJudged(t *testing.T) {
	s := &nftStamper{heard: map[uint32]bool{5: false, 6: false, 7: true, 9: false}, joinedAt: 5}
	for _, tt := range []struct {
		name     string
		from, to uint32
		want     verdict
	}{
		{"nobody wrote", 6, 6, harmless},
		{"heard from its beginning", 5, 6, harmless},
		{"under way when listening began", 4, 6, unheard},
		{"touched ours", 5, 7, harmful},
		{"not heard", 6, 8, unheard},
	} {
		if got := s.judgeNow(tt.from, tt.to); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
