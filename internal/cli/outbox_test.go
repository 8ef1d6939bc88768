package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// newInstallation returns an installation with SQLite.
func newInstallation(t *testing.T) *installation {
	t.Helper()
	p := &installation{t: t, dir: filepath.Join(t.TempDir(), "data")}
	p.vars = map[string]string{"GOGC": "100", "POSTRIDER_DATA_DIR": p.dir}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	dbtest.WriteSQLite(t, filepath.Join(p.dir, "postrider.db"))
	return p
}

// captured is an email in the outbox, as far as the tests need it.
type captured struct {
	ID, Subject, From, Text, HTML string
	EmailID                       string `json:"email_id"`
	ReturnPath                    string `json:"return_path"`
	CreatedAt                     string `json:"created_at"`
	To, Cc, Recipients, Truncated []string
	Size                          int
	AttachmentCount               int `json:"attachment_count"`
	Read                          bool
	ReleasedAt                    string `json:"released_at"`
	Links                         []struct{ URL, Text string }
	Headers                       []struct{ Name, Value string }
	Attachments                   []struct {
		Filename, Path string
		ContentType    string `json:"content_type"`
		ContentID      string `json:"content_id"`
		Size           int
	}
}

type capturedList struct {
	HasMore bool `json:"has_more"`
	Data    []captured
}

// outbox makes a request without a key and returns the response and its body.
func (n *started) outbox(method, path, body string, header http.Header) (*http.Response, string) {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), method, n.url+"/dev/outbox"+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return answer, string(text)
}

// mustOutbox makes a request that must succeed and decodes the response.
func (n *started) mustOutbox(method, path, body string, into any) {
	n.t.Helper()
	answer, text := n.outbox(method, path, body, nil)
	if answer.StatusCode != 200 || !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json") {
		n.t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		n.t.Fatalf("%v: %s", err, text)
	}
}

// sends sends an email, waits until the outbox has it, and returns it as it is in the list.
func (n *started) sends(key, email string) captured {
	n.t.Helper()
	sent := n.made(key, "/emails", email)
	var found captured
	eventually(n.t, "the email is captured", func() bool {
		var list capturedList
		n.mustOutbox("GET", "?limit=100", "", &list)
		for _, m := range list.Data {
			if m.EmailID == sent {
				found = m
			}
		}
		return found.ID != ""
	})
	return found
}

func emailTo(to, subject string) string {
	return `{"from":"Acme <hello@resend.dev>","to":"` + to + `","subject":"` + subject + `","text":"Hi"}`
}

// The outbox lists emails, and shows one with its parts.
func TestOutboxShowsEmails(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		n := p.start()
		var list capturedList
		if n.mustOutbox("GET", "", "", &list); len(list.Data) != 0 || list.HasMore {
			t.Errorf("%+v", list)
		}
		m := n.sends(key, `{"from":"Acmé <hello@resend.dev>","to":"Ann <ann@one.example>","cc":"bob@one.example",
			"bcc":"hidden@one.example","reply_to":"help@acme.example","subject":"Größe",
			"html":"<h1>Hi</h1><script>alert(1)</script><a href=\"https://acme.example/confirm?a=1&amp;b=2\">Confirm</a><img src=\"cid:logo\"><img src=\"https://t.example/x.png\">",
			"text":"Hi, see https://acme.example/text.","headers":{"X-Entity":"7"},"attachments":[
			{"filename":"page.html","content":"PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==","content_type":"text/html"},
			{"filename":"logo.png","content":"iVBORw0KGgo=","content_id":"logo"}]}`)
		if diff := cmp.Diff([]string{"ann@one.example", "bob@one.example", "hidden@one.example"}, m.Recipients); diff != "" {
			t.Error(diff)
		}
		if m.Subject != "Größe" || m.From != "Acmé <hello@resend.dev>" || fmt.Sprint(m.To, m.Cc) !=
			"[Ann <ann@one.example>] [bob@one.example]" || m.AttachmentCount != 2 || m.Read || m.ReleasedAt != "" ||
			!strings.Contains(m.ReturnPath, "@") || m.Size < 500 {
			t.Errorf("%+v", m)
		}
		if at, err := time.Parse(time.RFC3339, m.CreatedAt); err != nil || time.Since(at).Abs() > time.Hour {
			t.Error(m.CreatedAt, err)
		}
		var one captured
		n.mustOutbox("GET", "/"+m.ID, "", &one)
		if !strings.Contains(one.HTML, "<script>alert(1)</script>") || one.Text != "Hi, see https://acme.example/text." ||
			len(one.Links) != 2 || one.Links[0].URL != "https://acme.example/confirm?a=1&b=2" ||
			one.Links[0].Text != "Confirm" || one.Links[1].URL != "https://acme.example/text" {
			t.Errorf("%+v", one)
		}
		fields := map[string]string{}
		for _, h := range one.Headers {
			fields[h.Name] = h.Value
		}
		if fields["X-Entity"] != "7" || fields["Reply-To"] == "" || fields["DKIM-Signature"] == "" || fields["Bcc"] != "" {
			t.Errorf("%+v", fields)
		}
		if len(one.Attachments) != 2 {
			t.Fatalf("%+v", one.Attachments)
		}
		n.showsParts(one)
		var checks struct {
			Object, Level string
			Data          []struct{ ID string }
		}
		if n.mustOutbox("GET", "/"+m.ID+"/checks", "", &checks); checks.Object != "email_checks" || len(checks.Data) < 5 {
			t.Errorf("%+v", checks)
		}
		if n.mustOutbox("PATCH", "/"+m.ID, `{"read":true}`, &one); !one.Read {
			t.Error("the email is not read")
		}
		if n.mustOutbox("GET", "", "", &list); len(list.Data) != 1 || !list.Data[0].Read {
			t.Errorf("%+v", list)
		}
		browser := http.Header{"Accept": {"text/html,application/xhtml+xml,*/*;q=0.8"}}
		answer, text := n.outbox("GET", "", "", browser)
		if !strings.Contains(text, "Größe") || !strings.Contains(text, `name="viewport"`) ||
			!strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") {
			t.Errorf("%d %s", answer.StatusCode, text)
		}
	})
}

// showsParts checks the responses with the parts of the email that TestOutboxShowsEmails sends.
func (n *started) showsParts(m captured) {
	t := n.t
	t.Helper()
	const sandbox = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
	is := func(answer *http.Response, name, want string) {
		t.Helper()
		if got := answer.Header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	for i, a := range m.Attachments {
		answer, text := n.outbox("GET", strings.TrimPrefix(a.Path, "/dev/outbox"), "", nil)
		if answer.StatusCode != 200 || len(text) != a.Size || (i == 1) != (text == "<script>alert(1)</script>") {
			t.Errorf("%+v: %d %q", a, answer.StatusCode, text)
		}
		is(answer, "Content-Disposition", "attachment; filename="+a.Filename)
		is(answer, "Content-Security-Policy", sandbox)
		is(answer, "X-Content-Type-Options", "nosniff")
		is(answer, "Content-Type", a.ContentType)
	}
	answer, text := n.outbox("GET", "/"+m.ID+"/html", "", nil)
	is(answer, "Content-Security-Policy", sandbox)
	is(answer, "Content-Type", "text/html; charset=utf-8")
	is(answer, "Cross-Origin-Resource-Policy", "same-origin")
	if !strings.Contains(text, `<img src="data:image/png;base64,iVBORw0KGgo=">`) ||
		!strings.Contains(text, "https://t.example/x.png") {
		t.Errorf("%d %s", answer.StatusCode, text)
	}
	answer, text = n.outbox("GET", "/"+m.ID+"/raw", "", nil)
	is(answer, "Content-Security-Policy", sandbox)
	is(answer, "Content-Type", "text/plain; charset=utf-8")
	is(answer, "X-Content-Type-Options", "nosniff")
	if len(text) != m.Size || !strings.Contains(text, "\r\nDKIM-Signature:") {
		t.Errorf("%d %s", answer.StatusCode, text)
	}
}

// Filters and pages select emails, and DELETE deletes those that its filters select.
func TestOutboxFilters(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		n := p.start()
		ann := n.sends(key, emailTo("ann@one.example", "First"))
		joann := n.sends(key, emailTo("joann@one.example", "Second"))
		zoe := n.sends(key, emailTo("Zoe+x@two.example", "Third"))
		for query, want := range map[string][]captured{
			"":                                  {zoe, joann, ann},
			"to=ann@one.example":                {ann},
			"to=@one.example":                   {joann, ann},
			"to=zoe%2Bx@two.example":            {zoe},
			"subject=IR":                        {zoe, ann},
			"from=acme":                         {zoe, joann, ann},
			"from=hello@resend.dev&subject=sec": {joann},
			"from=ann":                          {},
			"since=" + ann.ID:                   {zoe, joann},
			"since=" + joann.CreatedAt:          {zoe, joann},
			"since=2090-01-01T00:00:00Z":        {},
			"limit=2&after=" + zoe.ID:           {joann, ann},
		} {
			var list capturedList
			n.mustOutbox("GET", "?"+query, "", &list)
			if diff := cmp.Diff(want, list.Data); diff != "" || list.HasMore {
				t.Errorf("%s: %s", query, diff)
			}
		}
		var list capturedList
		if n.mustOutbox("GET", "?limit=2", "", &list); len(list.Data) != 2 || !list.HasMore {
			t.Errorf("%+v", list)
		}
		var done struct{ Deleted any }
		if n.mustOutbox("DELETE", "/"+zoe.ID, "", &done); done.Deleted != true {
			t.Error(done)
		}
		if n.mustOutbox("DELETE", "?to=ann@one.example", "", &done); done.Deleted != 1.0 {
			t.Error(done)
		}
		if n.mustOutbox("GET", "", "", &list); len(list.Data) != 1 || list.Data[0].ID != joann.ID {
			t.Errorf("%+v", list)
		}
		if n.mustOutbox("DELETE", "", "", &done); done.Deleted != 1.0 {
			t.Error(done)
		}
		for _, path := range []string{"", "/raw", "/html", "/checks", "/attachments/0"} {
			if answer, text := n.outbox("GET", "/"+zoe.ID+path, "", nil); answer.StatusCode != 404 ||
				!strings.Contains(text, `"name":"not_found"`) {
				t.Errorf("%s: %d %s", path, answer.StatusCode, text)
			}
		}
	})
}

// Values that would select other emails than intended are refused, with the name of the parameter.
func TestOutboxRefusesBadValues(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	key := p.key("Acme")
	n := p.start()
	m := n.sends(key, emailTo("ann@one.example", "First"))
	for _, c := range []struct {
		method, path string
		status       int
		say          string
	}{
		{"GET", "?recipient=a@one.example", 422, "`recipient`"},
		{"DELETE", "?recipient=a@one.example", 422, "`recipient`"},
		{"DELETE", "?to=", 422, "`to`"},
		{"DELETE", "?to=a@one.example&to=b@one.example", 422, "`to`"},
		{"DELETE", "?limit=1", 422, "`limit`"},
		{"DELETE", "?to=%zz", 422, "query"},
		{"GET", "?to=ann+x@one.example", 422, "`to`"},
		{"GET", "?from=x@", 422, "`from`"},
		{"GET", "?since=yesterday", 422, "`since`"},
		{"GET", "?limit=0", 422, "`limit`"},
		{"GET", "?limit=101", 422, "`limit`"},
		{"GET", "?limit=x", 422, "`limit`"},
		{"GET", "?after=x", 422, "`after`"},
		{"GET", "?subject=" + strings.Repeat("x", 1001), 422, "`subject`"},
		{"GET", "/wait?timeout=121s", 422, "`timeout`"},
		{"GET", "/wait?timeout=121", 422, "`timeout`"},
		{"GET", "/wait?timeout=-1s", 422, "`timeout`"},
		{"GET", "/wait?timeout=soon", 422, "`timeout`"},
		{"GET", "/wait?timeout=", 422, "`timeout`"},
		{"GET", "/wait?Timeout=1s", 422, "`Timeout`"},
		{"GET", "/wait?since=x", 422, "`since`"},
		{"GET", "/wait?limit=1", 422, "`limit`"},
		{"GET", "/events?timeout=1s", 422, "`timeout`"},
		{"GET", "/" + m.ID + "?x=1", 422, "`x`"},
		{"GET", "/" + m.ID + "/attachments/0", 404, "has 0 attachments"},
		{"GET", "/" + m.ID + "/attachments/x", 404, "has 0 attachments"},
		{"GET", "/" + m.ID + "/html", 404, "no HTML"},
		{"GET", "/" + m.ID + "/x", 404, "no operation"},
		{"GET", "/", 404, "no operation"},
		{"POST", "", 404, "no operation"},
		{"GET", "/x", 404, "has no email"},
		{"PATCH", "/" + m.ID, 422, "`read`"},
		{"PATCH", "/x", 404, "has no email"},
		{"DELETE", "/x", 404, "has no email"},
	} {
		body := `{}`
		if c.path == "/x" {
			body = `{"read":true}`
		}
		answer, text := n.outbox(c.method, c.path, body, nil)
		var e struct {
			StatusCode    int
			Message, Name string
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil || answer.StatusCode != c.status ||
			e.StatusCode != c.status || !strings.Contains(e.Message, c.say) || e.Name == "" {
			t.Errorf("%s %s: %d %s", c.method, c.path, answer.StatusCode, text)
		}
	}
	for _, body := range []string{"", "x", `[]`, `{"read":1}`, `{"red":true}`,
		`{"read":true}` + strings.Repeat(" ", 64<<10)} {
		if answer, text := n.outbox("PATCH", "/"+m.ID, body, nil); answer.StatusCode != 400 {
			t.Errorf("%.20q: %d %s", body, answer.StatusCode, text)
		}
	}
	var list capturedList
	if n.mustOutbox("GET", "", "", &list); len(list.Data) != 1 || list.Data[0].Read {
		t.Errorf("%+v", list)
	}
}

// Other web sites can change nothing, by a request of a browser or by DNS rebinding.
func TestOutboxIsSafeFromOtherSites(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	key := p.key("Acme")
	n := p.start()
	m := n.sends(key, emailTo("ann@one.example", "First"))
	host := strings.TrimPrefix(n.url, "http://")
	for _, c := range []struct {
		header http.Header
		host   string
		status int
	}{
		{http.Header{"Sec-Fetch-Site": {"cross-site"}}, host, 403},
		{http.Header{"Sec-Fetch-Site": {"same-site"}}, host, 403}, // another port of this machine
		{http.Header{"Origin": {"https://evil.example"}}, host, 403},
		{http.Header{"Origin": {"null"}}, host, 403},
		{http.Header{"Origin": {"http://evil.example"}, "Sec-Fetch-Site": {"same-origin"}}, "evil.example", 401},
		{http.Header{"Origin": {"http://evil.example"}}, "evil.example", 401},
		{http.Header{"X-Forwarded-For": {"127.0.0.1"}}, host, 401},
		{http.Header{"Sec-Fetch-Site": {"cross-site"}, "Authorization": {"Bearer " + devTestKey}}, "dev.example", 403},
		{http.Header{"Origin": {n.url}}, host, 200},
		{http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {n.url}}, host, 200},
		{http.Header{"Sec-Fetch-Site": {"none"}}, host, 200},
		{http.Header{"Authorization": {"Bearer " + devTestKey}}, "dev.example", 200},
	} {
		for _, request := range []struct{ method, path, body string }{
			{"PATCH", "/" + m.ID, `{"read":true}`}, {"DELETE", "?to=nobody@one.example", ""},
		} {
			r, err := http.NewRequestWithContext(t.Context(), request.method, n.url+"/dev/outbox"+request.path,
				strings.NewReader(request.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header, r.Host = c.header, c.host
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != c.status || !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json") {
				t.Errorf("%+v, %s: %d", c, request.method, answer.StatusCode)
			}
		}
	}
}

// Large and hostile emails are shown safely.
func TestOutboxShowsHostileEmails(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	key := p.key("Acme")
	n := p.start()
	m := n.sends(key, `{"from":"hello@resend.dev","to":"ann@one.example","subject":"\u202egnp.exe <b>","html":"<p>`+
		strings.Repeat("ä", 3<<20/2)+`","attachments":[{"filename":"..\\..\\a\u202e.txt","content":"aGk="},
		{"filename":"größe.txt","content":"aGk="}]}`)
	var one captured
	n.mustOutbox("GET", "/"+m.ID, "", &one)
	if len(one.HTML) > 2<<20 || len(one.HTML) < 2<<20-4 || fmt.Sprint(one.Truncated) != "[html text]" {
		t.Errorf("%d bytes, %v", len(one.HTML), one.Truncated)
	}
	if answer, text := n.outbox("GET", "/"+m.ID+"/html", "", nil); answer.StatusCode != 200 || len(text) < 3<<20 {
		t.Errorf("%d, %d bytes", answer.StatusCode, len(text))
	}
	for i, want := range []string{"attachment; filename=a.txt", "attachment; filename*=utf-8''gr%C3%B6%C3%9Fe.txt"} {
		answer, text := n.outbox("GET", fmt.Sprintf("/%s/attachments/%d", m.ID, i), "", nil)
		if got := answer.Header.Get("Content-Disposition"); got != want || text != "hi" {
			t.Errorf("%q with %q", got, text)
		}
	}
	_, page := n.outbox("GET", "", "", http.Header{"Accept": {"text/html"}})
	if !strings.Contains(page, "<bdi>[U&#43;202E]gnp.exe &lt;b&gt;</bdi>") {
		t.Error(page)
	}
}
