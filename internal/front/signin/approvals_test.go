package signin

import (
	"html"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/id"
	mailtext "github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/sending/approvals"
	"github.com/postrider/postrider/internal/sending/emails"
)

// The approval page shows the complete email, with its HTML as source code and in a sandboxed frame. A person can
// approve or reject the email on that page.
func TestApprovals(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ann@acme.example", teams.Member)
		x.person("vic@acme.example", teams.Viewer)
		x.person("eve@other.example", "")
		in := testnode.Hello("a@reader.example")
		in.HTML, in.Bcc = new(`<p>Hi<img src=x onerror=alert(1)></p><script>alert(2)</script>`), []string{"b@reader.example"}
		in.Subject = `"><script>alert(3)</script>`
		in.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("12345"), HasContent: true}}
		in.Attachments = append(in.Attachments, emails.Upload{Filename: "\u202egpj.txt", HasContent: true,
			Content: []byte("<b>bold</b> \u2066hidden\x00" + strings.Repeat("é", 150_000) + "the end")})
		in.Headers = []mailtext.Field{{Name: "X-Note", Value: "a\u200bb"}}
		in.Subject = "\u202e" + in.Subject
		ask := func() approvals.Approval {
			a, err := x.Approvals.Request(t.Context(), x.Acme, in, emails.Idempotency{})
			x.Must(err)
			return a
		}
		state := func(a approvals.Approval) approvals.State {
			a, err := x.Approvals.Get(t.Context(), x.Acme, a.ID)
			x.Must(err)
			return a.State
		}
		one, two := ask(), ask()
		ann, vic := x.browser(t).signIn("ann@acme.example"), x.browser(t).signIn("vic@acme.example")
		eve := x.browser(t).signIn("eve@other.example")
		form := url.Values{"team": {x.Acme.TeamID}, "reason": {"Not this."}}

		ann.get("/app/approvals")
		if ann.status != 200 || strings.Count(ann.body, "/app/approvals/") != 2 {
			t.Errorf("the list: %d %s", ann.status, ann.body)
		}
		ann.get("/app/approvals/" + one.ID)
		for _, text := range []string{"a@reader.example", "b@reader.example", "a.txt", "5 bytes", "Approve and send",
			"&lt;script&gt;alert(2)"} {
			if !strings.Contains(ann.body, text) {
				t.Errorf("the page lacks %q", text)
			}
		}
		if strings.Contains(ann.body, "<script>") || strings.Contains(ann.body, "<img") {
			t.Errorf("the page has the email's HTML: %s", ann.body)
		}
		ann.checkFrame(eve, one.ID, *in.HTML)
		ann.get("/app/approvals/" + one.ID)

		ann.want(200, "[U+202E]gpj.txt", "a[U+200B]b", `[U+202E]"><script>`)
		ann.get("/app/approvals").want(200, `[U+202E]"><script>`)
		ann.checkFiles(eve, one.ID)

		vic.get("/app/approvals/" + one.ID)
		if vic.status != 200 || strings.Contains(vic.body, "Approve and send") {
			t.Errorf("a viewer may decide: %d", vic.status)
		}
		for name, b := range map[string]*browser{"a viewer": vic, "a stranger": eve} {
			for _, action := range []string{"/send", "/reject"} {
				if b.post("/app/approvals/"+one.ID+action, form); b.status != 403 {
					t.Errorf("%s decides: %d", name, b.status)
				}
			}
		}
		if eve.get("/app/approvals/" + one.ID); eve.status != 404 {
			t.Errorf("a stranger sees it: %d", eve.status)
		}
		ann.get("/app/approvals/" + id.New())
		if ann.status != 404 {
			t.Errorf("one that is not there: %d", ann.status)
		}

		ann.post("/app/approvals/"+one.ID+"/send", form)
		if ann.path != "/app/approvals?done=email-approved" || state(one) != approvals.Approved {
			t.Errorf("approved: %s %s", ann.path, state(one))
		}
		ann.post("/app/approvals/"+two.ID+"/reject", form)
		if ann.path != "/app/approvals?done=email-rejected" || state(two) != approvals.Rejected {
			t.Errorf("rejected: %s %s", ann.path, state(two))
		}
		ann.get("/app/approvals/" + two.ID + "/files/0").want(404) // deleted with the decision
		ann.get("/app/approvals/" + two.ID + "/html").want(404)
		ann.post("/app/approvals/"+two.ID+"/send", form)
		if ann.status != 422 || !strings.Contains(ann.body, "rejected already") {
			t.Errorf("approved after it was rejected: %d %s", ann.status, ann.body)
		}
		if n := x.Count(`SELECT COUNT(*) FROM emails`); n != 1 {
			t.Errorf("%d emails were sent", n)
		}
	})
}

// checkFrame checks the email in the frame of an approval, which a stranger does not see.
func (b *browser) checkFrame(stranger *browser, approvalID, html string) {
	b.t.Helper()
	b.get("/app/approvals/"+approvalID+"/html").want(200, html)
	if policy := b.header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "sandbox; default-src 'none';") ||
		strings.Contains(policy, "https:") || b.header.Get("X-Frame-Options") != "" {
		b.t.Errorf("the frame has the headers %v", b.header)
	}
	stranger.get("/app/approvals/" + approvalID + "/html").want(404)
}

// checkFiles checks the pages of the files of an approval, which a stranger does not see.
func (b *browser) checkFiles(stranger *browser, approvalID string) {
	b.t.Helper()
	b.get("/app/approvals/"+approvalID+"/files/0").want(200, "a.txt", "12345")
	b.get("/app/approvals/"+approvalID+"/files/1").want(200, "[U+202E]gpj.txt", "[U+2066]hidden[U+0000]é", "Show more")
	if strings.Contains(b.body, "<b>bold") || strings.Contains(b.body, "the end") ||
		strings.Contains(b.body, "\ufffd") {
		b.t.Error("the page of a file has its HTML, all of it, or half a character")
	}
	_, rest, _ := strings.Cut(html.UnescapeString(b.body), "?from=")
	from, _, _ := strings.Cut(rest, `"`)
	b.get("/app/approvals/"+approvalID+"/files/1?from="+from).want(200, "éthe end")
	if strings.Contains(b.body, "\ufffd") || strings.Contains(b.body, "Show more") {
		b.t.Error("the end of a file is not shown as its end")
	}
	for _, path := range []string{approvalID + "/files/2", approvalID + "/files/-1", approvalID + "/files/x",
		id.New() + "/files/0"} {
		b.get("/app/approvals/" + path).want(404)
	}
	stranger.get("/app/approvals/" + approvalID + "/files/0").want(404)
}
