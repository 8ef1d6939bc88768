package templates

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
)

// A team that has reserved its whole share of the memory waits up to 10 seconds for more, without delaying other teams.
func TestMemoryIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		var all []reservation
		for range 4 {
			h, err := reserve(t.Context(), m.stored, "a", MaxSize)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, h)
		}
		began := time.Now()
		if _, err := reserve(t.Context(), m.stored, "a", MaxSize); fault.KindOf(err) != fault.Unavailable ||
			time.Since(began) != memoryWait {
			t.Errorf("a fifth: %v, after %s", err, time.Since(began))
		}
		if _, err := reserve(t.Context(), m.stored, "a", memoryLarge-1); err != nil {
			t.Errorf("a small one: %v", err)
		}
		other, err := reserve(t.Context(), m.stored, "b", MaxSize)
		if err != nil {
			t.Errorf("another team: %v", err)
		}
		if _, err := reserve(t.Context(), m.rendered, "a", maxRendered); err != nil {
			t.Errorf("what is made of it: %v", err)
		}
		other.Close()
		time.AfterFunc(memoryWait/2, all[0].Close)
		if _, err := reserve(t.Context(), m.stored, "a", MaxSize); err != nil {
			t.Errorf("a fifth, once one is given back: %v", err)
		}
	})
}
