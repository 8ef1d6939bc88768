package cli

import (
	"net/url"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
)

// searches makes the search index of the team's emails, changes and repairs it, and searches with filters of all kinds.
func (d *driver) searches(emailID, domainID string) {
	d.t.Helper()
	index := func() {
		if err := d.Emails.Index.Update(d.t.Context()); err != nil {
			d.t.Error(err)
		}
	}
	eventually(d.t, "emails are in the search index", func() bool {
		index()
		return d.count(`SELECT COUNT(*) FROM email_terms`) > 0
	})
	for range 2 {
		for _, query := range []string{"q=two", "q=@two.example", "to=b@two.example", "from=a@acme.example&subject=s",
			"status=queued,delivered", "tag=a:b&q=x", "created_after=2020-01-01&created_before=2090-01-01",
			"domain_id=01970002-0000-7000-8000-000000000000", "api_key_id=01970002-0000-7000-8000-000000000000&q=t",
			"template_id=01970002-0000-7000-8000-000000000000", "broadcast_id=01970002-0000-7000-8000-000000000000"} {
			d.do("GET", "/emails?"+query, "")
			first := d.do("GET", "/emails?limit=1&"+query, "")
			if first != "" {
				d.do("GET", "/emails?limit=1&"+query+"&after="+first, "")
				d.do("GET", "/emails?limit=1&"+query+"&before="+first, "")
			}
			d.do("GET", "/emails?limit=1&"+query+"&before=00000000-0000-7000-8000-000000000000", "")
		}
		d.do("GET", "/emails?q="+url.QueryEscape(`"tw, @two.ex`), "")
		err := d.DB.Update(d.t.Context(), func(tx *db.Tx) error {
			return emails.SetDomain(d.t.Context(), tx, d.team, emailID, domainID)
		})
		if err != nil {
			d.t.Error(err)
		}
		index()
	}
	if err := d.Emails.Index.Rebuild(d.t.Context(), d.team); err != nil {
		d.t.Error(err)
	}
}
