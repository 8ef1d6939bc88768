package backfill_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/platform/backfill"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// counted stores a fact for each of ten rows, two in a step.
func counted(name string, fail func(row int) error) backfill.Backfill {
	return backfill.Backfill{Name: name, Step: func(ctx context.Context, tx *db.Tx, place string) (string, error) {
		row := 0
		if place != "" {
			row, _ = strconv.Atoi(place)
		}
		for range 2 {
			row++
			if _, err := tx.Exec(ctx, `INSERT INTO installation (name, value) VALUES ($1, '')`,
				fmt.Sprint(name, " row ", row)); err != nil {
				return "", err
			}
			if err := fail(row); err != nil {
				return "", err
			}
		}
		if row == 10 {
			return "", nil
		}
		return strconv.Itoa(row), nil
	}}
}

func rows(t *testing.T, d *db.DB, name string) (n int) {
	t.Helper()
	if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM installation WHERE name LIKE $1`,
		name+" row %").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A backfill that fails in each step once continues, and handles each row once.
func TestContinues(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		failed := map[int]bool{}
		failure := errors.New("failure")
		b := counted("slow", func(row int) error {
			if row%2 == 0 && !failed[row] {
				failed[row] = true
				return failure
			}
			return nil
		})
		for n := range 5 {
			if err := backfill.Run(t.Context(), d, b); !errors.Is(err, failure) {
				t.Fatal(err)
			}
			if got := rows(t, d, "slow"); got != 2*n {
				t.Errorf("after failure %d there are %d rows", n+1, got)
			}
		}
		if ok, err := backfill.Done(t.Context(), d, "slow"); ok || err != nil {
			t.Errorf("it is done before its end, %v", err)
		}
		for range 2 {
			if err := backfill.Run(t.Context(), d, b); err != nil {
				t.Error(err)
			}
		}
		if ok, err := backfill.Done(t.Context(), d, "slow"); !ok || err != nil || rows(t, d, "slow") != 10 {
			t.Errorf("done: %v, %v; %d rows", ok, err, rows(t, d, "slow"))
		}
	})
}

// Nodes that run the same backfill do not handle a row twice.
func TestManyNodes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := counted("shared", func(int) error { return nil })
		var nodes sync.WaitGroup
		for range 4 {
			nodes.Go(func() {
				for {
					if backfill.Run(t.Context(), d, b) == nil || t.Context().Err() != nil {
						return
					}
				}
			})
		}
		nodes.Wait()
		if n := rows(t, d, "shared"); n != 10 {
			t.Errorf("%d rows", n)
		}
	})
}
