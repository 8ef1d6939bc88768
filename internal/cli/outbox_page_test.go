package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/smtptest"
)

// browser opens pages of the outbox as a browser without scripts does.
type browser struct {
	*started
	client *http.Client
}

func (n *started) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		n.t.Fatal(err)
	}
	return &browser{n, &http.Client{Jar: jar}}
}

// open requests a page, or submits a form if there is one. It returns the last page and its status and path.
func (b *browser) open(path string, form url.Values, headers ...string) (status int, text, at string) {
	b.t.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", b.url)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") {
		b.t.Errorf("%s %s is no page: %d %s", method, path, answer.StatusCode, body)
	}
	return answer.StatusCode, string(body), answer.Request.URL.RequestURI()
}

// shows checks the status of a page and what the page contains.
func (b *browser) shows(path string, status int, parts ...string) string {
	b.t.Helper()
	got, text, _ := b.open(path, nil)
	b.contains(path, got, status, text, parts)
	return text
}

// submits submits a form and checks the page that follows.
func (b *browser) submits(path string, form url.Values, status int, parts ...string) (at string) {
	b.t.Helper()
	got, text, at := b.open(path, form)
	b.contains(path, got, status, text, parts)
	return at
}

func (b *browser) contains(path string, got, want int, text string, parts []string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: %d instead of %d: %s", path, got, want, text)
	}
	for _, part := range parts {
		without, no := strings.CutPrefix(part, "!")
		if no == strings.Contains(text, without) {
			b.t.Errorf("%s: %q: %s", path, part, text)
		}
	}
}

// The page shows the list, and one email with its parts.
func TestOutboxPage(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	key := p.key("Acme")
	n := p.start()
	b := n.browser()
	b.shows("/dev/outbox", 200, "Send your first email", "Nothing leaves this machine", "!Clear outbox", "Sign in",
		`data-source="/dev/outbox/events"`, n.url+"/emails", `name="viewport"`)
	ann := n.sends(key, `{"from":"Acme <hello@resend.dev>","to":["ann@one.example","bob@one.example"],
		"subject":"First <b>","html":"<h1>Hello</h1><a href=\"https://acme.example/confirm?a=1\">Confirm</a>","headers":{"X-Entity":"7"},
		"attachments":[{"filename":"invoice.pdf","content":"aGk="}]}`)
	zoe := n.sends(key, emailTo("zoe@two.example", "Second"))
	b.shows("/dev/outbox", 200, "First &lt;b&gt;", "Second", "ann@one.example", "+1", "1 attachment", "2 unread",
		"1–2 of 2", "Search 2 emails", "Clear outbox")
	own := "/dev/outbox/" + ann.ID

	b.open(own, nil, "X-Live", "1") // a part that is read again says nothing about the visitor
	b.shows("/dev/outbox", 200, "2 unread")
	b.shows(own, 200, "<h1><bdi>First &lt;b&gt;</bdi></h1>", `src="/dev/outbox/`+ann.ID+`/html"`, `sandbox=""`,
		"/attachments/0", "invoice.pdf", "to=ann@one.example&amp;timeout=30s", "Load images", "1 unread", "!<h1>Hello")
	b.shows(own+"?images=1", 200, `src="/dev/outbox/`+ann.ID+`/html?images=1"`)
	b.shows(own+"?view=phone", 200, `class="paper phone"`)
	b.shows(own+"?view=html", 200, "&lt;h1&gt;Hello&lt;/h1&gt;", "!<iframe")
	b.shows(own+"?view=raw", 200, "DKIM-Signature:")
	b.shows(own+"?pane=links", 200, `href="https://acme.example/confirm?a=1"`, "Confirm")
	b.shows(own+"?pane=headers", 200, "X-Entity")
	b.shows(own+"?pane=files", 200, "application/pdf")
	b.shows("/dev/outbox/"+zoe.ID, 200, "!<iframe", `aria-label="Content">Hi`, "!unread</span>")
	answer, _ := n.outbox("GET", "/"+ann.ID+"/html?images=1", "", nil)
	if got := answer.Header.Get("Content-Security-Policy"); !strings.Contains(got, "sandbox;") ||
		!strings.Contains(got, "img-src data: https: http:") {
		t.Error(got)
	}

	b.shows("/dev/outbox?q=", 200, "First", "Second")
	b.shows("/dev/outbox?q=SECOND", 200, "!First", "Second", "1–1 of 1", "Delete found")
	b.shows("/dev/outbox?q=one.example", 200, "First", "!Second")
	b.shows("/dev/outbox?q=acme", 200, "First", "Second")
	b.shows("/dev/outbox?q=nowhere", 200, "No email matches", "!Delete found")
	b.shows("/dev/outbox?to=@two.example", 200, "!First", "Remove the filter by To")
	b.shows(own+"?q=second", 200, "First &lt;b&gt;", "Second", "?q=second")
	b.shows("/dev/outbox?after="+zoe.ID, 200, "!Second", "First", "2–2 of 2", "Newer emails")
	for path, status := range map[string]int{"?recipient=x": 422, "?q=a&q=b": 422, "?since=x": 422, "/x": 404, "/": 404,
		"?q=" + strings.Repeat("x", 1001): 422} {
		b.shows("/dev/outbox"+path, status, "<h1>")
	}
	var list capturedList
	if n.mustOutbox("GET", "", "", &list); len(list.Data) != 2 {
		t.Errorf("%+v", list)
	}
}

// The forms of the page mark, delete, restore and clear emails.
func TestOutboxForms(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	key := p.key("Acme")
	n := p.start()
	b := n.browser()
	var all []captured
	for i := range 3 {
		all = append(all, n.sends(key, emailTo("ann@one.example", fmt.Sprintf("Email %d", i))))
	}
	none := url.Values{}
	b.submits("/dev/outbox/read", url.Values{"q": {"email 1"}}, 200)
	b.shows("/dev/outbox", 200, "2 unread")
	b.submits("/dev/outbox/read", none, 200, "!unread</span>")
	b.submits("/dev/outbox/"+all[0].ID+"/unread", none, 200, "1 unread")

	_, raw := n.outbox("GET", "/"+all[1].ID+"/raw", "", nil)
	at := b.submits("/dev/outbox/"+all[1].ID+"/delete", url.Values{"q": {"email"}}, 200, "Email deleted.", "Undo",
		"!Email 1")
	if at != "/dev/outbox?q=email" {
		t.Error(at)
	}
	b.shows("/dev/outbox", 200, "!Email deleted.")
	b.submits("/dev/outbox/"+all[0].ID+"/restore", none, 404)
	b.submits("/dev/outbox/"+all[1].ID+"/delete", none, 404)
	b.submits("/dev/outbox/"+all[2].ID+"/delete", none, 200)
	if at = b.submits("/dev/outbox/"+all[2].ID+"/restore", none, 200, "Email restored."); at != "/dev/outbox/"+all[2].ID {
		t.Error(at)
	}
	b.submits("/dev/outbox/"+all[2].ID+"/restore", none, 404)
	b.submits("/dev/outbox/"+all[1].ID+"/restore", none, 404)
	_, after := n.outbox("GET", "/"+all[1].ID+"/raw", "", nil)
	if after == raw {
		t.Error("the email is not deleted")
	}
	var list capturedList
	if n.mustOutbox("GET", "", "", &list); len(list.Data) != 2 || list.Data[0].ID != all[2].ID || !list.Data[0].Read {
		t.Errorf("%+v", list)
	}

	b.shows("/dev/outbox?do=clear", 200, "All 2 emails of all teams", `data-confirm="outbox"`)
	for _, typed := range []string{"", "yes", "Outbox"} {
		b.submits("/dev/outbox/clear", url.Values{"confirm": {typed}}, 422, "Type the word outbox", "Email 0")
	}
	b.submits("/dev/outbox/clear", url.Values{"confirm": {"outbox"}, "q": {"email 0"}}, 200, "1 email deleted.", "Email 2")
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://evil.example"}, {"Origin", "null"}} {
		for path, form := range map[string]url.Values{"/clear": {"confirm": {"outbox"}}, "/read": none,
			"/" + all[2].ID + "/delete": none, "/" + all[2].ID + "/unread": none, "/" + all[2].ID + "/release": none} {
			if status, text, _ := b.open("/dev/outbox"+path, form, headers...); status != 403 {
				t.Errorf("%s with %v: %d %s", path, headers, status, text)
			}
		}
	}
	b.submits("/dev/outbox/clear", url.Values{"confirm": {"outbox"}}, 200, "1 email deleted.", "Send your first email")
}

// The form of a release shows errors beside its fields, keeps what was typed, and says who got the email.
func TestOutboxReleaseForm(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	key := p.key("Acme")
	n := p.start()
	b := n.browser()
	m := n.sends(key, emailTo("ann@one.example", "First"))
	server := smtptest.NewServer(t, smtptest.Config{Rcpt: func(_, to string) string {
		if strings.HasPrefix(to, "gone") {
			return "550 5.1.1 no such <user>"
		}
		return ""
	}})
	path := "/dev/outbox/" + m.ID + "/release"
	b.shows("/dev/outbox/"+m.ID+"?do=release", 200, `value="ann@one.example"`, `action="`+path+`"`)
	for _, c := range []struct {
		relay, to string
		status    int
		say       string
	}{
		{"", "ann@one.example", 422, "No relay is configured"},
		{"smtp.example.com", "ann@one.example", 422, `value="smtp.example.com"`},
		{"10.0.0.1:25", "ann@one.example", 422, "not public"},
		{server.Addr, "", 422, "Enter an address"},
		{server.Addr, "ann", 422, `id="to-error"`},
		{server.Addr, "gone@one.example", 502, "550 5.1.1 no such &lt;user&gt;"},
	} {
		b.submits(path, url.Values{"relay": {c.relay}, "to": {c.to}}, c.status, c.say, `role="`, "Release email")
	}
	b.submits(path, url.Values{"relay": {server.Addr}, "to": {"me@two.example, gone@two.example,"}}, 200,
		"accepted it for 1 of 2 recipients", "gone@two.example (550 5.1.1 no such &lt;user&gt;)", "released")
	if got := server.Wait(1); fmt.Sprint(got[0].To) != "[me@two.example]" {
		t.Errorf("%+v", got[0])
	}
}
