package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// From the page of an email, a visitor goes on through the list from which the email was opened, with its filters. At
// its ends the page says so.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		var ids []string
		for _, subject := range []string{"Invoice 1", "Other", "Invoice 2", "Invoice 3"} {
			id := b.sendJSON(map[string]any{"from": "Acme <billing@acme.example>", "to": "laura@example.org", "subject": subject,
				"text": "x", "tags": []map[string]string{{"name": "type", "value": strings.ToLower(subject[:5])}}})
			ids = append(ids, id)
		}
		const filter = "?in=7d&tag=type%3Ainvoi"
		if list := v.shows("/app/emails"+filter, 200); !strings.Contains(list, ids[2]+"?in=7d&amp;tag=type%3Ainvoi\"") {
			t.Errorf("the rows do not know the filter:\n%s", list)
		}
		page := v.shows("/app/emails/"+ids[2]+filter+"&view=text", 200, `href="/app/emails?in=7d&amp;tag=type%3Ainvoi"`)
		for _, link := range []string{"/newer", "/older"} {
			if !strings.Contains(page, `href="/app/emails/`+ids[2]+link+`?in=7d&amp;tag=type%3Ainvoi"`) {
				t.Errorf("the page lacks a link to %s", link)
			}
		}
		for from, to := range map[string]string{
			ids[2] + "/older" + filter: ids[0] + filter, ids[2] + "/newer" + filter: ids[3] + filter,
			ids[2] + "/older": ids[1], ids[1] + "/newer": ids[2],
			ids[0] + "/older" + filter: ids[0] + filter, ids[3] + "/newer": ids[3],
		} {
			v.isLed("/app/emails/"+from, "/app/emails/"+to)
		}
		v.shows("/app/emails/"+ids[0]+"/older", 200, "This is the oldest email of the list.")
		v.shows("/app/emails/"+ids[3]+"/newer"+filter, 200, "This is the newest email of the list.")
		v.shows("/app/emails/"+ids[3]+"/newer?in=nonsense", 422)
		v.shows("/app/emails/00000000-0000-7000-8000-000000000000/older", 404)
		b.visitorOf(b.other.TeamID, teams.Owner).shows("/app/emails/"+ids[2]+"/older", 404)
	})
}

// From the page of a received email, a visitor goes on through the list from which the email was opened, with its
// filters.
func TestNeighboursOfReceivedEmails(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		var ids []string
		for _, subject := range []string{"Invoice 1", "Other", "Invoice 2"} {
			ids = append(ids, b.receive("From: Maja <maja@fjordlabs.example>\nTo: support@acme.example\nSubject: "+subject+
				"\n\nx\n"))
		}
		const filter = "?in=7d&q=invoi"
		const escaped = "?in=7d&amp;q=invoi"
		if list := v.shows("/app/receiving"+filter, 200); !strings.Contains(list, ids[2]+escaped+`"`) ||
			strings.Contains(list, ids[1]) {
			t.Errorf("the rows do not know the filter:\n%s", list)
		}
		v.shows("/app/receiving/"+ids[2]+filter, 200, `href="/app/receiving`+escaped+`"`,
			`href="/app/receiving/`+ids[2]+`/newer`+escaped+`" rel="prev"`,
			`href="/app/receiving/`+ids[2]+`/older`+escaped+`" rel="next"`)
		thread := b.api("GET", "/emails/receiving/"+ids[1], "")["thread_id"].(string)
		for from, to := range map[string]string{
			ids[2] + "/older" + filter: ids[0] + filter, ids[0] + "/newer" + filter: ids[2] + filter,
			ids[2] + "/older": ids[1], ids[1] + "/newer": ids[2],
			ids[0] + "/older" + filter: ids[0] + filter, ids[2] + "/newer": ids[2],
			ids[1] + "/older?thread=" + thread: ids[1] + "?thread=" + thread,
		} {
			v.isLed("/app/receiving/"+from, "/app/receiving/"+to)
		}
		v.shows("/app/receiving/"+ids[0]+"/older", 200, "This is the oldest email of the list.")
		v.shows("/app/receiving/"+ids[2]+"/newer"+filter, 200, "This is the newest email of the list.")
		v.shows("/app/receiving/"+ids[2]+"/newer?in=nonsense", 422)
		v.shows("/app/receiving/00000000-0000-7000-8000-000000000000/older", 404)
		b.visitorOf(b.other.TeamID, teams.Owner).shows("/app/receiving/"+ids[2]+"/older", 404)
	})
}

// isLed checks that a page leads to another one.
func (v *visitor) isLed(from, to string) {
	v.t.Helper()
	w, _ := v.exchange(http.MethodGet, from, nil)
	if got := w.Header.Get("Location"); w.StatusCode != 303 || got != to {
		v.t.Errorf("%s leads to %d %s, want %s", from, w.StatusCode, got, to)
	}
}
