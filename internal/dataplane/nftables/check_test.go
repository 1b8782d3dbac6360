//go:build linux

package nftables

import (
	"context"
	"strings"
	"testing"
)

func TestOldKernelsAreRefused(t *testing.T) {
	for _, tc := range []struct {
		release string
		good    bool
	}{
		{"6.18.44-fc", true}, {"5.13.0", true}, {"6.1.0-44-cloud-amd64", true}, {"10.0", true}, {"who knows", true},
		{"5.12.19", false}, {"4.19.0-27-amd64", false},
	} {
		err := checkRelease(tc.release)
		if (err == nil) != tc.good {
			t.Errorf("%s: %v", tc.release, err)
		}
		if err != nil && (!strings.Contains(err.Error(), tc.release) || !strings.Contains(err.Error(), "5.13")) {
			t.Errorf("%s: %v does not say what is missing", tc.release, err)
		}
	}
	if err := newKernel(t).dataplane().Check(context.Background()); err != nil {
		t.Errorf("this kernel: %v", err)
	}
}
