package dashboard_test

import (
	"net/url"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
)

// A new key is shown even if the domains for its example can no longer be read, because no later page shows it.
func TestNewKeyWithoutExample(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Admin)
		spoil := `UPDATE domains SET checks = 'not JSON'`
		statements := []string{`CREATE TRIGGER spoil AFTER INSERT ON api_keys BEGIN ` + spoil + `; END`}
		if !b.DB.Alone() {
			statements = []string{
				`CREATE FUNCTION spoil() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN ` + spoil + `; RETURN NULL; END $$`,
				`CREATE TRIGGER spoil AFTER INSERT ON api_keys FOR EACH ROW EXECUTE FUNCTION spoil()`}
		}
		b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
			for _, text := range statements {
				if _, err := tx.Exec(t.Context(), text); err != nil {
					return err
				}
			}
			return nil
		}))
		v.says("/app/keys/new", url.Values{"name": {"shop"}, "permission": {"sending_access"}}, 200, "re_",
			"onboarding@resend.dev")
	})
}
