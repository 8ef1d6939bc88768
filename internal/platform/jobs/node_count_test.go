package jobs

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// TestNodesAreCounted starts, stops and kills nodes, declares a node dead, and checks the number that OnNodes reports.
// A node's rows in the tables of package nodelimits are deleted together with the node.
func TestNodesAreCounted(t *testing.T) {
	d := dbtest.Postgres(t)
	first, second := testRunner(t, d), testRunner(t, d)
	counts := make(chan int, 10_000)
	first.OnNodes(func(n int) { counts <- n })
	until := func(want int) (seen []int) {
		t.Helper()
		for n := range counts {
			if seen = append(seen, n); n == want {
				return seen
			}
		}
		return nil
	}
	stopFirst := start(t, first)
	defer stopFirst()
	until(1)
	stop := start(t, second)
	until(2)
	exec(t, d, `INSERT INTO quotas (key, node, want, used, held) VALUES ('k', $1, 1, 0, 1), ('k', $2, 1, 0, 1)`,
		db.ID(first.Node()), db.ID(second.Node()))
	stop()
	until(1)
	quotas := func() (n int) {
		if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM quotas`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := quotas(); n != 1 {
		t.Errorf("after one of two nodes has ended there are the rows of %d", n)
	}
	dead := db.ID(dbtest.ID("dead"))
	exec(t, d, `INSERT INTO nodes (id, beat, started_at) VALUES ($1, 5, 0)`, dead)
	exec(t, d, `INSERT INTO quotas (key, node, want, used, held) VALUES ('k', $1, 1, 0, 1)`, dead)
	until(2)
	until(1)
	if n := quotas(); n != 1 {
		t.Errorf("after one of two nodes has died there are the rows of %d", n)
	}
	exec(t, d, `DELETE FROM nodes`)
	if seen := until(0); slices.Contains(seen, 2) {
		t.Errorf("before it was taken for dead it saw %v nodes", seen)
	}
	until(1)
	if n := quotas(); n != 0 {
		t.Errorf("a node that was taken for dead kept %d rows", n)
	}
}

// TestNodesHearOfEachOther checks that a node is notified immediately when another node starts or stops, not only at
// its hourly check.
func TestNodesHearOfEachOther(t *testing.T) {
	d := dbtest.Postgres(t)
	first, second := testRunner(t, d), testRunner(t, d)
	first.pulse.every = normalPulse.dead * 100
	counts := make(chan int, 10_000)
	first.OnNodes(func(n int) { counts <- n })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { d.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	defer start(t, first)()
	if n := <-counts; n != 1 {
		t.Errorf("%d nodes at first", n)
	}
	stop := start(t, second)
	for n := range counts {
		if n == 2 {
			break
		}
	}
	stop()
	for n := range counts {
		if n == 1 {
			break
		}
	}
}
