package fairshare_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/postrider/postrider/internal/platform/fairshare"
)

// fill acquires slots for an owner, one at a time, until the pool grants no more. The fill function returns how many
// slots it acquired.
func fill(p *fairshare.Pool, owner string) (n int) {
	for p.TryAcquire(owner, 1) {
		n++
	}
	return n
}

func TestOwnersAlwaysLeaveSome(t *testing.T) {
	for _, c := range []struct {
		capacity, greed int64
		owners          int
		first, last     int // slots held by the first and by the last owner that fills the pool
	}{
		{500, 7, 1, 437, 437},
		{500, 7, 2, 437, 55},
		{500, 7, 3, 437, 7},
		{8, 7, 1, 7, 7},
		{8, 7, 2, 7, 1},
		{4, 7, 1, 3, 3},
		{2, 7, 2, 1, 1},
		{1, 7, 1, 1, 1},
		{100, 1, 1, 50, 50},
		{100, 3, 2, 75, 18},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			p := fairshare.New(c.capacity, c.greed)
			var got []int
			for o := range c.owners {
				room := int(p.Available(fmt.Sprint(o)))
				got = append(got, fill(p, fmt.Sprint(o)))
				if room != got[o] {
					t.Errorf("owner %d was promised room for %d and got %d", o, room, got[o])
				}
			}
			if got[0] != c.first || got[c.owners-1] != c.last {
				t.Errorf("owners got %v, want %d for the first and %d for the last", got, c.first, c.last)
			}
		})
	}
}

// If owners acquire as many slots as possible, their shares become equal as slots are released and acquired.
func TestSharesEven(t *testing.T) {
	p := fairshare.New(500, 7)
	held := [2]int{fill(p, "0"), 0}
	for range 1000 {
		p.Release("0", 1)
		held[0]--
		for o := range 2 {
			if p.TryAcquire(fmt.Sprint(1-o), 1) {
				held[1-o]++
			}
		}
	}
	if held[0]-held[1] > 2 || held[0] < 230 {
		t.Errorf("the owners hold %v of 500 places in the end, want about 233 each", held)
	}
}

func TestWaitersHaveTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fairshare.New(8, 7)
		n := fill(p, "a")
		var mu sync.Mutex
		var order []string
		wait := func(owner string) {
			go func() {
				if err := p.Acquire(t.Context(), owner, 1); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, owner)
				mu.Unlock()
			}()
			synctest.Wait()
		}
		for range 3 {
			wait("a")
		}
		wait("b") // owner b acquires the slot that stayed free
		wait("b")
		wait("c")
		for range 6 {
			p.Release("a", 1)
			synctest.Wait()
		}
		if got := fmt.Sprint(order); got != "[b c a b a a]" {
			t.Errorf("%d places were held; then the order was %v", n, got)
		}
	})
}

// A large request from an owner without slots is granted once enough slots are free, even if other owners continue to
// make small requests.
func TestLargeRequestOfANewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fairshare.New(100, 7)
		if !p.TryAcquire("a", 80) {
			t.Fatal("the first request of all is refused")
		}
		large := make(chan error, 1)
		go func() { large <- p.Acquire(t.Context(), "b", 40) }()
		synctest.Wait()
		if p.TryAcquire("a", 1) || p.Available("a") != 0 {
			t.Error("an owner takes more while a newcomer waits for what is free")
		}
		if !p.TryAcquire("c", 5) {
			t.Error("a newcomer waits behind another's large request")
		}
		p.Release("a", 30)
		if err := <-large; err != nil {
			t.Error(err)
		}
	})
}

func TestRequestThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fairshare.New(10, 7)
		fill(p, "a")
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("stopping")
		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- p.Acquire(ctx, "b", 9) }()
		}
		synctest.Wait()
		cancel(why)
		for range 2 {
			if err := <-ended; !errors.Is(err, why) {
				t.Errorf("Acquire returned %v, want the cause of the end", err)
			}
		}
		if !p.TryAcquire("b", 1) {
			t.Error("a request that was given up still waits")
		}
	})
}

// The slots in use never exceed the capacity, an owner that is entitled to a free slot does not wait, and all slots are
// free at the end.
func TestPlacesAddUp(t *testing.T) {
	p := fairshare.New(64, 7)
	var mu sync.Mutex
	var out, most int64
	var wg sync.WaitGroup
	for o := range 12 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(o)))
			owner := fmt.Sprint(o % 4)
			for range 500 {
				n := r.Int64N(20)
				ctx, cancel := context.WithCancel(t.Context())
				if r.IntN(4) == 0 {
					go cancel()
				}
				if p.Acquire(ctx, owner, n) == nil {
					mu.Lock()
					out += n
					most = max(most, out)
					mu.Unlock()
					mu.Lock()
					out -= n
					mu.Unlock()
					p.Release(owner, n)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if most > 64 {
		t.Errorf("%d places of 64 were held at once", most)
	}
	if !p.TryAcquire("new", 64) {
		t.Error("not all places came back")
	}
}
