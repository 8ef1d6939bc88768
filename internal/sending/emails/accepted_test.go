package emails_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/emails"
)

// OnAccept gets the ids of accepted emails once, after their commit, with where they came from.
func TestOnAccept(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n := testnode.New(t, d, testnode.Options{})
		var seen []string
		n.Emails.OnAccept = func(source string, ids []string) {
			for _, id := range ids {
				if n.Count(`SELECT COUNT(*) FROM emails WHERE id = $1`, db.ID(id)) != 1 {
					t.Errorf("%s is reported before its commit", id)
				}
			}
			seen = append(seen, fmt.Sprint(source, " ", len(ids)))
		}
		ctx, key := t.Context(), emails.Idempotency{Key: "k", Scope: "s"}
		hello := testnode.Hello("ann@example.net")
		for range 2 { // the second request is a repetition
			_, err := n.Emails.Send(ctx, n.Acme, hello, key)
			n.Must(err)
		}
		_, err := n.Emails.SendBatch(ctx, n.Acme, []emails.Send{hello, hello}, false, emails.Idempotency{})
		n.Must(err)
		// A batch in which every email is refused reports no accepted email.
		_, err = n.Emails.SendBatch(ctx, n.Acme, []emails.Send{{From: "x"}}, true, emails.Idempotency{})
		n.Must(err)
		if _, err := n.Emails.Send(ctx, n.Acme, emails.Send{From: "x"}, emails.Idempotency{}); err == nil {
			t.Fatal("an invalid email is accepted")
		}
		n.Must(n.Emails.DryRun(ctx, n.Acme, hello))
		if want := []string{"api 1", "api 2"}; !slices.Equal(seen, want) {
			t.Errorf("reported %q, want %q", seen, want)
		}
	})
}
