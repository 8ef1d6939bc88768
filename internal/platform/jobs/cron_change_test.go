package jobs

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// When the number of parts changes, jobs of the earlier parts are deleted, and so is the job of work that was not
// divided. A node of the earlier build runs the new parts until it is stopped, so each part of the work is still done.
func TestNumberOfPartsChanges(t *testing.T) {
	d := dbtest.Postgres(t)
	var ran []Part
	start := func(parts int) *Runner {
		r := NewRunner(d, NewQueue(d), slog.New(slog.DiscardHandler), time.Second)
		r.Cron(Cron{Name: "c", Every: time.Hour, Parts: parts, RunPart: func(_ context.Context, p Part) error {
			ran = append(ran, p)
			return nil
		}})
		if err := r.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	waiting := func() (all []Job) {
		rows, err := d.Query(t.Context(), `SELECT id, payload FROM jobs WHERE kind = 'cron.c' ORDER BY dedupe`)
		all, err = db.Collect(rows, err, func(r db.Row) (j Job, err error) {
			return j, r.Scan((*db.ID)(&j.ID), &j.Payload)
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	start(1)
	first := start(4)
	if all := waiting(); len(all) != 4 {
		t.Errorf("the jobs are %+v", all)
	}
	// A node works on the first part while a node with another number of parts starts. The job stays until the next start.
	exec(t, d, `UPDATE jobs SET holder = $1 WHERE payload = '0/4'`, db.ID(first.node))
	start(2)
	all := waiting()
	if len(all) != 3 {
		t.Errorf("the jobs are %+v", all)
	}
	for _, j := range all {
		if err := first.kinds[0].Handle(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	if want := []Part{{0, 2}, {0, 4}, {1, 2}}; !slices.Equal(ran, want) {
		t.Errorf("parts %v ran, want %v", ran, want)
	}
	start(2)
	if all := waiting(); len(all) != 2 {
		t.Errorf("the jobs are %+v", all)
	}
}
