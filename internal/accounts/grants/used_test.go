package grants_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
)

// The transaction that records the use of a grant stores nothing else of the request, such as its idempotency key.
func TestRecordingAUseStoresNothingElse(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		token, added := f.granted(f.Acme, "emails:send").Access, false
		ctx := db.WithAddition(t.Context(), func(context.Context, *db.Tx) { added = true })
		_, err := f.Node.Teams.Authenticate(ctx, token)
		f.Must(err)
		if added {
			t.Error("the addition of the request was stored")
		}
	})
}

// settle writes the uses that have not been written yet, as at the end of the program.
func (f *fixture) settle() {
	f.T.Helper()
	ctx, cancel := context.WithCancel(f.T.Context())
	cancel()
	f.Must(f.Service.Run(ctx))
}

// A request with an access token does not wait until the grant's time of last use is written. The time is written when
// the program ends, if not before, and at most once a minute.
func TestRequestsDoNotWaitForTheTimeOfLastUse(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		token := f.granted(f.Acme, "emails:send").Access
		made := f.only()
		f.Must(f.DB.Update(t.Context(), func(tx *db.Tx) error {
			// The transaction holds the lock that a write to the grant needs.
			if _, err := tx.Exec(t.Context(), `UPDATE oauth_grants SET generation = generation`); err != nil {
				return err
			}
			_, err := f.Node.Teams.Authenticate(t.Context(), token)
			return err
		}))
		if g := f.only(); !g.UsedAt.Equal(made.CreatedAt) {
			t.Errorf("used at %v before it was written", g.UsedAt)
		}
		f.settle()
		first := f.only().UsedAt
		if !first.After(made.CreatedAt) {
			t.Fatalf("used at %v, created at %v", first, made.CreatedAt)
		}
		f.Node.Teams.Forget()
		f.works(token, true)
		f.settle()
		if g := f.only(); !g.UsedAt.Equal(first) {
			t.Errorf("the second use within a minute was written: %v after %v", g.UsedAt, first)
		}
	})
}

// If a time of last use cannot be written, the failure is logged, and the time is written later.
func TestLastUseOfAGrantSurvivesAFailure(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		var log bytes.Buffer
		f.Node.Log = slog.New(slog.NewTextHandler(&log, nil))
		f.Service = serve(f.Node)
		token := f.granted(f.Acme, "emails:send").Access
		f.works(token, true)
		f.exec(`ALTER TABLE oauth_grants RENAME TO elsewhere`)
		f.settle()
		if !strings.Contains(log.String(), "could not write when connected apps were last used") {
			t.Errorf("log %q", log.String())
		}
		f.exec(`ALTER TABLE elsewhere RENAME TO oauth_grants`)
		f.settle()
		if g := f.only(); !g.UsedAt.After(g.CreatedAt) {
			t.Error("the last use is lost")
		}
	})
}
