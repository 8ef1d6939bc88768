package fairshare_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/postrider/postrider/internal/platform/fairshare"
)

func TestTurnsOfOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := fairshare.NewTurns(3, 0)
		var mu sync.Mutex
		var order []string
		enter := func(ctx context.Context, owner string) chan error {
			ended := make(chan error, 1)
			go func() {
				err := turns.Acquire(ctx, owner)
				if err == nil {
					mu.Lock()
					order = append(order, owner)
					mu.Unlock()
				}
				ended <- err
			}()
			synctest.Wait()
			return ended
		}
		for range 3 { // a single owner gets all slots
			enter(t.Context(), "a")
		}
		for range 100 {
			enter(t.Context(), "a")
		}
		gone, cancel := context.WithCancelCause(t.Context())
		given := enter(gone, "b")
		enter(t.Context(), "b")
		enter(t.Context(), "c")
		cancel(errors.New("stopping"))
		if err := <-given; err == nil || err.Error() != "stopping" {
			t.Errorf("Enter returned %v, want the cause of the end", err)
		}
		leave := func(owner string) {
			turns.Release(owner)
			synctest.Wait()
		}
		leave("a")
		leave("a")
		if got := order[3:]; len(got) != 2 || !slices.Contains(got, "b") || !slices.Contains(got, "c") {
			t.Errorf("the first places that were left went to %v, want b and c", got)
		}
		turns.SetLimit(4, 0)
		synctest.Wait()
		if got := fmt.Sprint(order[5:]); got != "[a]" {
			t.Errorf("another place went to %v", got)
		}
		turns.SetLimit(1, 0)
		for _, owner := range []string{"a", "b", "c"} {
			leave(owner)
		}
		if len(order) != 6 {
			t.Errorf("a place was given while more are taken than there are: %v", order)
		}
		for range 99 {
			leave("a")
		}
		if len(order) != 6+99 || turns.Unused() {
			t.Errorf("%d entered", len(order))
		}
		leave("a")
		if !turns.Unused() {
			t.Error("places are lost")
		}
	})
}

func TestTurnsKeepAReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := fairshare.NewTurns(10, 1)
		entered := map[string]int{}
		var mu sync.Mutex
		for _, owner := range []string{"a", "b"} {
			for range 20 {
				go func() {
					if turns.Acquire(t.Context(), owner) == nil {
						mu.Lock()
						entered[owner]++
						mu.Unlock()
					}
				}()
			}
			synctest.Wait()
		}
		if entered["a"] != 9 || entered["b"] != 1 {
			t.Fatalf("entered %v, want 9 and the one that is kept for who has none", entered)
		}
		turns.Release("b")
		synctest.Wait()
		if entered["a"] != 9 || entered["b"] != 2 {
			t.Errorf("entered %v: the place that is kept went to who has some", entered)
		}
		for range 9 {
			turns.Release("a")
			synctest.Wait()
		}
		if entered["a"]+entered["b"] != 19 || entered["b"] < 6 { // b may get nine slots in a row: both hold slots
			t.Errorf("entered %v after 10 of the first have left", entered)
		}
		ends := map[string]int{"a": 9, "b": 1}
		for !turns.Unused() {
			for _, owner := range []string{"a", "b"} {
				if ends[owner] < entered[owner] {
					ends[owner]++
					turns.Release(owner)
					synctest.Wait()
				}
			}
		}
		if entered["a"] != 20 || entered["b"] != 20 {
			t.Errorf("entered %v in the end, want all", entered)
		}
	})
}
