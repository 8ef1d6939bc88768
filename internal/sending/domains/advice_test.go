package domains_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A request for the set-up never waits for the DNS. The advice is there at a later request.
func TestAdviceIsMadeInTheBackground(t *testing.T) {
	f := newSetups(t, dbtest.SQLite(t))
	dom := f.create(team, "acme.example")
	answer, made := make(chan string), make(chan bool)
	var calls atomic.Int32
	f.Service.Deps.Advice = func(_ context.Context, d *domains.Domain, wanted []domains.Record) domains.Advice {
		calls.Add(1)
		defer func() { go func() { made <- true }() }()
		if d.Name != dom.Name || len(wanted) == 0 {
			t.Errorf("asked about %s with %d records", d.Name, len(wanted))
		}
		return domains.Advice{Provider: <-answer}
	}
	get := func() domains.Setup {
		t.Helper()
		v, err := f.GetSetup(t.Context(), team, dom.ID)
		f.must(err)
		return v
	}
	for range 3 {
		if v := get(); v.Advice != nil || !v.Pending {
			t.Errorf("before an answer: %+v, pending %v", v.Advice, v.Pending)
		}
	}
	answer <- "Provider"
	<-made
	deadline := time.Now().Add(10 * time.Second)
	v := get()
	for v.Advice == nil && time.Now().Before(deadline) {
		v = get()
	}
	if v.Advice == nil || v.Advice.Provider != "Provider" || v.Pending || calls.Load() != 1 {
		t.Errorf("then: %+v, pending %v, after %d calls", v.Advice, v.Pending, calls.Load())
	}
	f.must(f.ChangeSetup(t.Context(), team, dom.ID, to(domains.SetupCNAME)))
	if v := get(); v.Advice != nil || !v.Pending {
		t.Errorf("for other records: %+v", v.Advice)
	}
	close(answer)
	<-made
}

// A stopping node ends the look-ups for advice, and waits for them. Requests that come later get no new ones.
func TestAdviceEndsWithTheNode(t *testing.T) {
	f := newSetups(t, dbtest.SQLite(t))
	dom := f.create(team, "acme.example")
	var calls atomic.Int32
	var ended atomic.Bool
	began := make(chan struct{}, 2)
	f.Service.Deps.Advice = func(ctx context.Context, _ *domains.Domain, _ []domains.Record) domains.Advice {
		calls.Add(1)
		began <- struct{}{}
		<-ctx.Done()
		if errors.Is(ctx.Err(), context.Canceled) {
			ended.Store(true)
		}
		return domains.Advice{}
	}
	request, answered := context.WithCancel(t.Context())
	get := func() {
		t.Helper()
		if v, err := f.GetSetup(request, team, dom.ID); err != nil || v.Advice != nil || !v.Pending {
			t.Errorf("%+v, pending %v, %v", v.Advice, v.Pending, err)
		}
	}
	get()
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.must(f.Service.Run(ctx))
	if !ended.Load() {
		t.Error("the node has stopped, and its look-ups go on")
	}
	get()
	answered()
	if calls.Load() != 1 {
		t.Errorf("%d look-ups", calls.Load())
	}
}

// When the state of a record has changed, earlier problems are left out until the advice is renewed. A domain whose
// records were just found has no problem "missing".
func TestAdviceForgetsSolvedProblems(t *testing.T) {
	f := newSetups(t, dbtest.SQLite(t))
	dom := f.create(team, "acme.example")
	answers := make(chan domains.Advice)
	f.Service.Deps.Advice = func(context.Context, *domains.Domain, []domains.Record) domains.Advice { return <-answers }
	get := func() domains.Setup {
		t.Helper()
		v, err := f.GetSetup(t.Context(), team, dom.ID)
		f.must(err)
		return v
	}
	renewed := func(a domains.Advice) domains.Setup {
		t.Helper()
		get()
		answers <- a
		for deadline := time.Now().Add(10 * time.Second); ; {
			if v := get(); !v.Pending || time.Now().After(deadline) {
				return v
			}
		}
	}
	missing := []domains.Problem{{Code: "missing", Name: "send.acme.example"}}
	if v := renewed(domains.Advice{Provider: "Provider", Problems: missing}); v.Pending || len(v.Problems) != 1 {
		t.Fatalf("before the records are found: %+v", v)
	}
	f.install(f.Records(&dom), true)
	if dom = f.look(team, dom.ID); dom.Status != domains.Verified {
		t.Fatalf("it is %s", dom.Status)
	}
	if v := get(); v.Advice == nil || v.Advice.Provider != "Provider" || len(v.Problems)+len(v.Advice.Problems) != 0 || !v.Pending {
		t.Errorf("after the records were found: %+v, problems %+v, pending %v", v.Advice, v.Problems, v.Pending)
	}
	if v := renewed(domains.Advice{Problems: missing}); v.Pending || len(v.Problems) != 1 {
		t.Errorf("after new look-ups: %+v", v)
	}
}
