package dataplane_test

import (
	"context"
	"fmt"
	"net/netip"

	"sluice/internal/dataplane"
	"sluice/internal/dataplane/dataplanetest"
	"sluice/internal/model"
	"sluice/internal/plan"
)

// A dataplane is given everything once, and then changes.
func ExampleDataplane() {
	ctx := context.Background()
	d, err := dataplanetest.Toy.Open(ctx, dataplane.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()

	web := &plan.Frontend{
		Key:   plan.Key{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Protocol: model.TCP},
		Route: plan.Route{Endpoints: []plan.Endpoint{{AddrPort: netip.MustParseAddrPort("10.244.1.1:8080")}}},
	}
	change := &plan.Change{Set: []*plan.Frontend{web}}
	fmt.Println("too early:", d.Apply(ctx, change).Err)

	r := d.Reconcile(ctx, &plan.Desired{})
	fmt.Println("reconciled:", r.Err, len(r.Failed))
	r = d.Apply(ctx, change)
	fmt.Println("applied:", r.Err, len(r.Failed))
	good, err := d.Verify(ctx)
	fmt.Println("verified:", good, err)
	// Output:
	// too early: nothing was reconciled yet
	// reconciled: <nil> 0
	// applied: <nil> 0
	// verified: true <nil>
}

// A frontend that the kernel refuses does not keep the others from being programmed.
// It is passed again later.
func ExampleResult() {
	bad := plan.Key{Addr: netip.MustParseAddr("10.96.0.10"), Port: 99, Protocol: model.SCTP}
	report := func(r dataplane.Result) {
		if r.Err != nil {
			fmt.Println("reconcile again:", r.Err)
		}
		for key, err := range r.Failed {
			fmt.Println("pass again later:", key, err)
		}
	}
	report(dataplane.Result{Failed: map[plan.Key]error{bad: fmt.Errorf("no SCTP in this kernel")}, Transactions: 1})
	report(dataplane.Result{Err: fmt.Errorf("device or resource busy")})
	// Output:
	// pass again later: 10.96.0.10:99/SCTP no SCTP in this kernel
	// reconcile again: device or resource busy
}
