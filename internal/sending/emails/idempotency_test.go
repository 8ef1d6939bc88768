package emails_test

import (
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
)

func TestIdempotency(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		key := emails.Idempotency{Scope: "POST /emails", Key: "k", Hash: "h"}
		id, err := f.Emails.Send(t.Context(), f.Acme, hello("a@one.example"), key)
		if err != nil {
			t.Fatal(err)
		}
		again, err := f.Emails.Send(t.Context(), f.Acme, hello("a@one.example"), key)
		if err != nil || again != id {
			t.Errorf("replay: %s, %v; want %s", again, err, id)
		}
		other := key
		other.Hash = "another"
		if _, err := f.Emails.Send(t.Context(), f.Acme, hello("a@one.example"),
			other); fault.KindOf(err) != fault.IdempotencyMismatch {
			t.Errorf("another payload: %v", err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM emails`); n != 1 {
			t.Errorf("%d emails, want 1", n)
		}
		t.Run("a failed request frees its key", func(t *testing.T) {
			key.Key = "fails"
			if _, err := f.Emails.Send(t.Context(), f.Acme, hello("nonsense"), key); err == nil {
				t.Fatal("accepted nonsense")
			}
			if _, err := f.Emails.Send(t.Context(), f.Acme, hello("a@one.example"), key); err != nil {
				t.Error(err)
			}
		})
		t.Run("many at once lead to one email", func(t *testing.T) {
			key.Key = "race"
			before := f.Count(`SELECT COUNT(*) FROM emails`)
			var wg sync.WaitGroup
			for range 12 {
				wg.Go(func() {
					_, err := f.Emails.Send(t.Context(), f.Acme, hello("a@one.example"), key)
					if err != nil && fault.KindOf(err) != fault.InFlight {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := f.Count(`SELECT COUNT(*) FROM emails`) - before; n != 1 {
				t.Errorf("%d emails, want 1", n)
			}
		})
		t.Run("a key is forgotten after a day", func(t *testing.T) {
			err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `UPDATE idempotency_keys SET created_at = created_at - $1`,
					(25 * time.Hour).Microseconds())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			key.Key = "k"
			fresh, err := f.Emails.Send(t.Context(), f.Acme, hello("a@one.example"), key)
			if err != nil || fresh == id {
				t.Errorf("after a day: %s, %v", fresh, err)
			}
			if err := f.Emails.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			if n := f.Count(`SELECT COUNT(*) FROM idempotency_keys`); n != 1 {
				t.Errorf("%d keys after the sweep, want 1", n)
			}
		})
	})
}
