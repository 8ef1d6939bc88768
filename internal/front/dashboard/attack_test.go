package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/platform/db"
)

// The pages of a contact and of a broadcast refuse ids of nothing and of other teams, show hostile texts as text, and
// never end in an internal error.
func TestContactAndBroadcastUnderAttack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		const hostile = `\u202e</title><script>alert(1)</script><img src=x onerror=alert(1)>{{.}}`
		contact := b.api("POST", "/contacts", `{"email":"laura@brightwater.example","first_name":"`+hostile+
			`","last_name":"`+strings.Repeat("W", 200)+`"}`)["id"].(string)
		segment := b.api("POST", "/segments", `{"name":"`+hostile+`"}`)["id"].(string)
		broadcast := b.api("POST", "/broadcasts", `{"name":"`+hostile+`","segment_id":"`+segment+
			`","from":"Acme <news@acme.example>","subject":"`+hostile+`","html":"<p>Hello</p>"}`)["id"].(string)
		b.api("POST", "/contacts/"+contact+"/segments/"+segment, "")
		v, other := b.visitor(teams.Viewer), b.visitorOf(b.other.TeamID, teams.Owner)
		for at, id := range map[string]string{"/app/contacts/": contact, "/app/broadcasts/": broadcast} {
			for _, path := range []string{at + id, at + strings.ToUpper(id), at + id + "?x=%3Cscript%3E&after=x&q=%F0%9F"} {
				w, page := v.exchange(http.MethodGet, path, nil)
				if strings.Contains(path, "%F0") && w.StatusCode == 400 { // not UTF-8
					continue
				}
				if w.StatusCode != 200 || strings.Contains(page, "<script>") || strings.Contains(page, "<img src=x") ||
					strings.ContainsFunc(asItIs.ReplaceAllString(page, ""), visible.Hidden) {
					t.Errorf("%s: %d\n%s", path, w.StatusCode, page)
				}
			}
			other.shows(at+id, 404)
			for _, wrong := range []string{"%00", "%ff", "x", "..%2f..%2f", strings.Repeat("x", 6000), "%E2%80%AE", segment,
				contact + broadcast, "laura@brightwater.example", "'%20OR%201=1--", "00000000-0000-0000-0000-000000000000"} {
				if w, page := v.exchange(http.MethodGet, at+wrong, nil); w.StatusCode != 404 && w.StatusCode != 400 {
					t.Errorf("%s%.100s: %d\n%s", at, wrong, w.StatusCode, page)
				}
			}
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
				w, page := v.exchange(method, at+id, url.Values{"team": {v.teamID}})
				if w.StatusCode != 404 && w.StatusCode != 405 {
					t.Errorf("%s %s: %d\n%s", method, at, w.StatusCode, page)
				}
			}
		}
		b.must(b.Teams.SetSuspended(t.Context(), b.acme.TeamID, true))
		b.eventually("the team is suspended", func() bool {
			status, _ := v.get("/app/contacts/" + contact)
			return status == 403
		})
		v.shows("/app/broadcasts/"+broadcast, 200)
	})
}

// A key whose name nobody can type as it is stored can be deleted on its page: the page asks for what is visible.
func TestConfirmsVisibleNames(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Admin)
		for name, typed := range map[string]string{"a  b": "a b", "a\u00a0b\u202e": "a b", "cafe\u0301": "caf\u00e9",
			"\u200b\u200b": "confirm"} {
			key, _, err := b.Teams.CreateKey(t.Context(), b.acme, teams.NewKey{Name: name})
			b.must(err)
			at := "/app/keys/" + key.ID
			v.shows(at+"?delete", 200, `data-confirm="`+typed+`"`)
			for _, wrong := range []string{"", " ", "x" + typed, typed + "\x00", strings.Repeat(typed, 5000),
				strings.ToUpper(typed)} {
				if status, page := v.post(at+"/delete", url.Values{"confirm": {wrong, typed}}); status != 422 && status != 400 {
					t.Errorf("%q confirms the deletion of %q: %d\n%s", wrong, name, status, page)
				}
			}
			if status, page := v.post(at+"/delete", url.Values{"confirm": {typed}}); status != 200 {
				t.Errorf("%q does not confirm the deletion of %q: %d\n%s", typed, name, status, page)
			}
			if status, _ := v.post(at+"/delete", url.Values{"confirm": {typed}}); status != 404 {
				t.Errorf("the key %q can be deleted twice: %d", name, status)
			}
		}
	})
}

// Keyboards add joiners and variation selectors to emoji and to words of some scripts. A name with them is confirmed by
// typing it, with and without them.
func TestConfirmsTypedJoiners(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Admin)
		const name = "\u2764\ufe0f \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
		for _, typed := range []string{name, "\u2764 \u0645\u06cc\u062e\u0648\u0627\u0647\u0645"} {
			key, _, err := b.Teams.CreateKey(t.Context(), b.acme, teams.NewKey{Name: name})
			b.must(err)
			at := "/app/keys/" + key.ID
			_, page := v.post(at+"/delete", url.Values{"confirm": {"x"}})
			if strings.ContainsFunc(asItIs.ReplaceAllString(page, ""), visible.Hidden) {
				t.Errorf("the error has an invisible character\n%s", page)
			}
			status, page := v.post(at+"/delete", url.Values{"confirm": {typed}})
			if status != 200 || strings.ContainsFunc(asItIs.ReplaceAllString(page, ""), visible.Hidden) {
				t.Errorf("%q does not confirm the deletion of %q: %d\n%s", typed, name, status, page)
			}
		}
	})
}

// A host cannot put invisible characters into the page of an email by its answer.
func TestHostileAnswer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		id := b.send("bounced@resend.dev", "One")
		b.eventually("it bounces", func() bool {
			_, page := v.get("/app/emails/" + id)
			return strings.Contains(page, "The simulated answer:")
		})
		b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE email_events SET reply = $2
				WHERE email_id = $1 AND reply IS NOT NULL`, db.ID(id), "550 5.1.1 "+rightToLeft+"moc.knab")
			return err
		}))
		page := v.shows("/app/emails/"+id, 200, "550 5.1.1 [U&#43;202E]moc.knab")
		if strings.ContainsFunc(asItIs.ReplaceAllString(page, ""), visible.Hidden) {
			t.Errorf("the page has an invisible character\n%s", page)
		}
	})
}

// A parameter whose value ends with an equals sign is not empty, and stays in the address of a list.
func TestKeepsEqualsSign(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		for query, want := range map[string]string{"q=abc=": "", "q=a&tag=": "/app/emails?q=a", "q==&tag=": "/app/emails?q==",
			"tag=x%3D": "", "status=": "/app/emails"} {
			w, _ := v.exchange(http.MethodGet, "/app/emails?"+query, nil)
			if at := w.Header.Get("Location"); at != want {
				t.Errorf("%s leads to %q, want %q", query, at, want)
			}
		}
	})
}
