package kubernetes

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestOutageLastsUntilEveryKindIsBack(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clk := clocktesting.NewFakeClock(start)
	var log []string
	c := newConnection(funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{}), clk)
	refused, late := errors.New("refused"), errors.New("late")
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for i, step := range []struct {
		do   func()
		want Status
		log  string
	}{
		{func() {}, Status{Since: start}, ""},
		{func() { c.failed("Node", refused) }, Status{Since: at(1), Reason: refused}, "Cannot reach"},
		{func() { c.failed("Node", late) }, Status{Since: at(1), Reason: late}, ""},
		{func() { c.failed("Service", refused) }, Status{Since: at(1), Reason: late}, ""},
		{func() { c.reached("EndpointSlice") }, Status{Since: at(1), Reason: late}, ""},
		{func() { c.reached("Node") }, Status{Since: at(1), Reason: refused}, ""},
		{func() { c.reached("Service") }, Status{Connected: true, Since: at(6)}, `again" "after"="5s"`},
		{func() { c.reached("Service") }, Status{Connected: true, Since: at(6)}, ""},
		{func() { c.failed("Service", late) }, Status{Since: at(8), Reason: late}, "Cannot reach"},
		{func() { c.reached("Service") }, Status{Connected: true, Since: at(9)}, `again" "after"="1s"`},
	} {
		log = nil
		step.do()
		if got := c.status(); got.Connected != step.want.Connected || got.Since != step.want.Since || got.Reason != step.want.Reason {
			t.Errorf("step %d: status %+v, want %+v", i, got, step.want)
		}
		if lines := strings.Join(log, "\n"); (step.log == "") != (lines == "") || !strings.Contains(lines, step.log) {
			t.Errorf("step %d: logged %q, want %q", i, lines, step.log)
		}
		clk.Step(time.Second)
	}
}

func TestRemedies(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for _, tt := range []struct {
		name string
		in   error
		want string
	}{
		{"forbidden", apierrors.NewForbidden(nodes, "", errors.New("no")), "system:node-proxier"},
		{"unauthorized", apierrors.NewUnauthorized("who?"), "credentials"},
		{"unknown authority", fmt.Errorf("list: %w", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), "certificate-authority"},
		{"other name", fmt.Errorf("list: %w", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "10.0.0.1"}), "its certificate contains"},
		{"expired", fmt.Errorf("list: %w", x509.CertificateInvalidError{Reason: x509.Expired}), "renew"},
		{"anything else", errors.New("connection refused"), "reach"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := remedy(tt.in); !strings.Contains(got, tt.want) {
				t.Errorf("the remedy %q does not speak of %q", got, tt.want)
			}
		})
	}
}
