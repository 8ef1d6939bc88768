//go:build browser

package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestProgramsInABrowser: a user allows a connected app, finds it in the team's list of apps, limits it, and revokes
// it. The app's revoked token is refused immediately.
func TestProgramsInABrowser(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	p := newProgram(t, n)
	r := &reader{t: t, url: "http://" + n.addr, tab: chromium(t)}
	r.signsIn(n)

	registered, err := http.Post("http://"+n.addr+"/oauth/register", "application/json",
		strings.NewReader(`{"client_name":"Notes","redirect_uris":["`+p.redirect+`"]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer registered.Body.Close()
	var client struct {
		ID string `json:"client_id"`
	}
	if err := json.NewDecoder(registered.Body).Decode(&client); err != nil {
		t.Fatal(err)
	}
	r.open(authorizePath(p.redirect, client.ID, "automations:write automations:read domains:read"))
	r.sees("It can cause emails to be sent for the team: by automations that it makes or changes.")
	r.presses("Allow")
	r.sees("You can close this window.")
	token := p.token(client.ID, (<-p.sent).Get("code"))
	if status := p.status(token, "/domains"); status != http.StatusOK {
		t.Errorf("the token is answered with %d", status)
	}

	r.open("/app/account")
	r.presses("Connected apps")
	r.sees("Allowed by developer@postrider.localhost")
	r.sees("No limits.")
	// unfolds opens the details element whose summary starts with the given text.
	unfolds := func(text string) {
		t.Helper()
		at := chromedp.Search(`//summary[starts-with(normalize-space(.), "` + text + `")]`)
		if err := chromedp.Do(r.tab, chromedp.Click(at)); err != nil {
			t.Fatalf("unfold %s: %v", text, err)
		}
	}
	unfolds("What it may do")
	r.sees("Make and change automations, which send emails by themselves")
	unfolds("Limit")
	r.types("Emails a day optional", "5")
	r.presses("Save limits")
	r.sees("The limits are saved.")
	r.sees("At most 5 emails a day.")
	var list struct {
		Data []struct {
			RevokedReason *string `json:"revoked_reason"`
			Limits        struct {
				Emails *int64 `json:"emails_per_day"`
			}
		}
	}
	n.must(http.MethodGet, "/oauth/grants", "", &list)
	if len(list.Data) != 1 || list.Data[0].Limits.Emails == nil || *list.Data[0].Limits.Emails != 5 {
		t.Errorf("the API shows %+v", list)
	}

	unfolds("Revoke")
	r.presses("Revoke the access of Notes")
	r.sees("The app can no longer act for the team.")
	if status := p.status(token, "/domains"); status != http.StatusUnauthorized {
		t.Errorf("the revoked token is answered with %d", status)
	}
	r.sees("it was revoked on this page")
	n.must(http.MethodGet, "/oauth/grants", "", &list)
	if why := list.Data[0].RevokedReason; why == nil || *why != "revoked_from_dashboard" {
		t.Errorf("the API shows %+v", list)
	}
}
