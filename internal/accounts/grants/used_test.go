package grants_test

import (
	"context"
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
