package mcp

import (
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/platform/page"
)

// Both tools ask for one approval of the same email. A code that is newer than this approval sends the email.
func TestOneApprovalForBothTools(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		a := f.agent(f.limited("emails:send", grants.Limits{}))
		all, _, err := f.services.Grants.List(t.Context(), f.Acme.TeamID, page.Page{})
		f.Must(err)
		demand := func(yes bool) {
			_, err := f.services.Grants.SetLimits(t.Context(), f.Acme, all[0].ID, func(l *grants.Limits) error {
				l.Approval = yes
				return nil
			})
			f.Must(err)
		}
		check := func(what string, approvals, emails int) {
			t.Helper()
			if n := f.Count(`SELECT COUNT(*) FROM approvals`); n != approvals || f.sent() != emails {
				t.Fatalf("%s: %d approvals, %d emails", what, n, f.sent())
			}
		}
		var old, older, newer, last prepared
		a.do("send_email", hello(), &older)
		a.do("send_email", hello(), &old)
		demand(true)
		asked := a.do("send_email", hello(), nil)
		if confirmed := a.do("confirm_send", confirming(hello(), old.Code), nil); confirmed != asked {
			t.Errorf("confirm_send returns %s, and send_email %s", confirmed, asked)
		}
		check("both tools", 1, 0)
		more := confirming(hello(), older.Code)
		more["again"] = true
		for range 2 {
			a.do("confirm_send", more, nil)
		}
		check("once more", 2, 0)
		demand(false)
		for _, code := range []string{old.Code, older.Code} {
			a.do("confirm_send", confirming(hello(), code), nil)
		}
		check("codes that led to approvals", 2, 0)
		a.do("send_email", hello(), &newer)
		a.do("confirm_send", confirming(hello(), newer.Code), nil)
		check("a newer code", 2, 1)
		a.do("send_email", hello(), &last)
		demand(true)
		a.do("confirm_send", confirming(hello(), newer.Code), nil)
		a.do("confirm_send", confirming(hello(), last.Code), nil)
		check("required again", 2, 1)
	})
}
