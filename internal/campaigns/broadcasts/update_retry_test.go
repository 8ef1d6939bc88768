package broadcasts_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Update changes a draft and deletes the old text, even if the transaction is retried after a deadlock.
func TestChangeThatIsRepeated(t *testing.T) {
	t.Parallel()
	d, trace := dbtest.PostgresTraced(t)
	s := newSender(t, testnode.New(t, d, testnode.Options{}))
	id := s.draft(s.news())
	ctx, taken, changed := t.Context(), make(chan struct{}), make(chan struct{})
	s.Update(func(tx *db.Tx) error {
		for _, text := range []string{`SET LOCAL deadlock_timeout = '1min'`, `UPDATE contents SET kept = kept`} {
			if _, err := tx.Exec(ctx, text); err != nil {
				return err
			}
		}
		trace.Before("UPDATE broadcasts SET name", func() { close(taken) }) // at this point, Update has locked the draft
		go func() {
			defer close(changed)
			_, err := s.b.Update(ctx, s.Acme, id, broadcasts.Change{Subject: new("Other")})
			if err != nil {
				t.Errorf("the change is refused: %v", err)
			}
		}()
		<-taken
		_, err := tx.Exec(ctx, `UPDATE broadcasts SET guarded = guarded WHERE id = $1`, db.ID(id))
		return err
	})
	<-changed
	repeated := 0
	for _, st := range trace.Take() {
		if strings.Contains(st.SQL, "UPDATE broadcasts SET name") {
			repeated++
		}
	}
	if b := s.broadcast(id); b.Subject != "Other" || repeated < 2 {
		t.Errorf("the subject is %q after %d tries", b.Subject, repeated)
	}
	s.mustCount(1, `SELECT COUNT(*) FROM contents`)
}
