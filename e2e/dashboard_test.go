package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/postrider/postrider/internal/mail/smtpsink"
)

// TestDashboardByKeyboard: a developer does the first tasks with the dashboard of one node, from the first domain to a
// released email, by the keyboard alone. Each task begins where the task before has ended. axe-core looks at two of the
// pages on the way; make browser has all pages.
func TestDashboardByKeyboard(t *testing.T) {
	t.Parallel()
	sink := &letters{}
	server, err := smtpsink.Config{OnMessage: sink.add}.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	names := startDNS(t)
	n := start(t, []string{"POSTRIDER_TRUST_DOMAINS=false", "POSTRIDER_DNS_SERVERS=" + names.addr,
		"POSTRIDER_WEBHOOK_SCHEDULE=24h"})
	r := &reader{t: t, tab: chromium(t), url: n.localhost()}
	r.signsIn(n)
	r.sees("Send your first email")

	axe := axeSource(t)
	withoutBarriers := func() {
		for _, b := range r.barriers(axe) {
			t.Errorf("axe-core finds on %s", b)
		}
	}
	r.verifiesDomain(names)
	withoutBarriers() // on the page of a domain
	r.sendsFirstEmails()
	withoutBarriers() // on the page of an email
	r.readsBounce(n)
	r.replaysWebhook(n)
	r.releases(server.Addr(), sink)
	r.countsInZone()
	withoutBarriers() // on the page of metrics
	r.exports()
	withoutBarriers() // on the page of exports
}

// countsInZone opens the metrics in a browser whose time zone the server does not know yet. The page is counted in that
// zone at once.
func (r *reader) countsInZone() {
	r.t.Helper()
	if _, err := chromedp.Call(r.tab, emulation.SetTimezoneOverride,
		emulation.SetTimezoneOverrideParams{TimezoneID: "Pacific/Kiritimati"}); err != nil {
		r.t.Fatalf("set the time zone: %v", err)
	}
	r.open("/app/metrics")
	r.sees("times in Pacific/Kiritimati")
}

// exports downloads the list of emails, and watches the page of exports show it without a reload.
func (r *reader) exports() {
	r.t.Helper()
	r.open("/app/exports")
	r.sees("No export since yesterday")
	r.evaluates(`window.sameDocument = true; fetch("/app/emails/export").then((x) => x.text()); true`)
	r.sees("in all. The file is in the downloads of your browser.")
	if !r.evaluates(`window.sameDocument === true`) {
		r.t.Error("the page was loaded again")
	}
}

// verifiesDomain adds a domain, puts the records that the page shows into the DNS, and watches them turn verified.
func (r *reader) verifiesDomain(names *nameServer) {
	r.t.Helper()
	r.jumps("add a dom", "Add a domain")
	r.sees("Use a subdomain if another")
	r.tabsTo("Domain")
	r.hits("acme.example", kb.Enter)
	r.sees("Add these records at your DNS provider")
	records := strings.Split(strings.TrimSpace(r.text("#zone")), "\n")
	first, rest := len(records), records
	for i, text := range records {
		if strings.Contains(text, "v=spf1") {
			first, rest = i, append(append([]string{}, records[:i]...), records[i+1:]...)
		}
	}
	if first == len(records) {
		r.t.Fatalf("no record is for SPF: %q", records)
	}
	r.chooses("Check now")
	r.sees("We look again in")
	r.evaluates(`window.sameDocument = true`)
	names.add(records[first])
	verified := func(purpose string) bool {
		return r.evaluates(`[...document.querySelectorAll("table.records tr")].some(
			(x) => x.innerText.startsWith("` + purpose + `") && x.innerText.includes("Verified"))`)
	}
	eventually(r.t, time.Minute, "the record for SPF is verified", func() bool { return verified("SPF") })
	if verified("DKIM") {
		r.t.Error("a record that does not exist is verified")
	}
	names.add(rest...)
	r.sees("Sending works.")
	if !verified("DKIM") || !r.evaluates(`window.sameDocument === true`) {
		r.t.Error("the page was loaded again, or does not show the state of DKIM")
	}
}

// sendsFirstEmails creates a key and runs the examples that the page shows, watches the emails become delivered, and
// reads the explanation of the newest.
func (r *reader) sendsFirstEmails() {
	r.t.Helper()
	r.jumps("create an", "Create an API key")
	r.sees("Give each service a key of its own")
	r.tabsTo("Name")
	r.hits("billing", kb.Enter)
	r.sees("Copy your key now")
	dir := r.t.TempDir()
	curl, module := r.text("#code-curl"), filepath.Join(dir, "send.mjs")
	packages, err := filepath.Abs("../compat/node_modules")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.Symlink(packages, filepath.Join(dir, "node_modules")); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(module, []byte(r.text("#code-node")), 0o600); err != nil {
		r.t.Fatal(err)
	}

	r.chooses("Watch it arrive in Emails")
	r.sees("Run one of these examples")
	r.evaluates(`window.sameDocument = true`)
	r.runs("sh", "-c", curl)
	r.arrives(1)
	id := strings.TrimSpace(r.runs("node", module))
	r.arrives(2)
	if !r.evaluates(`window.sameDocument === true`) {
		r.t.Error("the page was loaded again")
	}
	r.hits("j", kb.Enter)
	r.sees("Explain this delivery")
	r.sees("The email was captured by this installation's outbox.")
	if !r.evaluates(`location.pathname === "/app/emails/` + id + `"`) {
		r.t.Errorf("the newest email is not %s", id)
	}
}

// runs runs a program and returns its output. It fails the test if the program fails.
func (r *reader) runs(name string, args ...string) string {
	r.t.Helper()
	out, err := exec.CommandContext(r.t.Context(), name, args...).Output()
	if err != nil {
		r.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// arrives waits until the list shows that many delivered emails.
func (r *reader) arrives(count int) {
	r.t.Helper()
	eventually(r.t, 30*time.Second, "the list shows the emails as captured", func() bool {
		n, err := json.Marshal(count)
		return err == nil && r.evaluates(`[...document.querySelectorAll("tbody tr")].filter(
			(x) => x.innerText.includes("you@example.org") && x.innerText.includes("Captured")).length === `+string(n))
	})
}

// readsBounce finds a bounced email by its recipient and reads why it bounced.
func (r *reader) readsBounce(n *node) {
	r.t.Helper()
	n.must("POST", "/emails",
		`{"from":"a@acme.example","to":"bounced@resend.dev","subject":"Into the void","text":"x"}`, nil)
	r.hits("g", "e")
	r.sees("Everything your team sent")
	eventually(r.t, 20*time.Second, "the list has the bounced email", func() bool {
		return r.evaluates(`document.querySelector("tbody")?.innerText.includes("Bounced")`)
	})
	r.hits("/")
	r.hits("bounced@resend.dev", kb.Enter)
	eventually(r.t, 20*time.Second, "the search is shown", func() bool {
		return r.evaluates(`location.search.includes("bounced") && document.readyState === "complete"`)
	})
	eventually(r.t, 20*time.Second, "the search finds the bounced email alone", func() bool {
		if r.evaluates(`document.querySelectorAll("tbody tr").length === 1`) {
			return true
		}
		r.open("/app/emails?q=bounced@resend.dev") // the index of the search is written behind the email
		return false
	})
	r.hits("j", kb.Enter)
	r.sees("Who must act")
	r.sees("550 5.1.1 user unknown") // in the transcript
}

// replaysWebhook opens a webhook whose receiver has refused a message, and sends the message again.
func (r *reader) replaysWebhook(n *node) {
	r.t.Helper()
	hook := &secondTime{tries: map[string]int{}}
	receiver := httptest.NewServer(hook)
	r.t.Cleanup(receiver.Close)
	n.must("POST", "/webhooks", `{"endpoint":"`+receiver.URL+`","events":["email.delivered"]}`, nil)
	n.must("POST", "/emails", `{"from":"a@acme.example","to":"hook@example.net","subject":"Hooked","text":"x"}`, nil)
	eventually(r.t, 20*time.Second, "the receiver refuses the message", func() bool { return hook.most() == 1 })
	r.hits("g", "w")
	r.sees("Postrider sends a signed request to these addresses")
	r.hits("j", kb.Enter)
	r.sees("Signing secret")
	r.hits("j", kb.Enter)
	r.sees("not yet") // the receiver's answer
	r.chooses("Replay")
	eventually(r.t, 20*time.Second, "the receiver gets the message again", func() bool { return hook.most() == 2 })
	r.sees("200 OK")
	r.sees("Delivered")
}

// releases sends a captured email to a mail server.
func (r *reader) releases(relay string, sink *letters) {
	r.t.Helper()
	r.open("/dev/outbox?q=hook@example.net")
	r.sees("Hooked")
	r.hits("j", kb.Enter)
	r.chooses("Release")
	r.sees("The email is sent now, exactly as it was captured.")
	r.tabsTo("Mail server")
	r.hits(relay)
	r.chooses("Release email")
	r.sees("Email released: " + relay + " accepted it for 1 of 1 recipients.")
	if all := sink.to("hook@example.net"); len(all) != 1 || !strings.Contains(all[0], "Subject: Hooked") {
		r.t.Errorf("the mail server got %q", all)
	}
}

// secondTime is a receiver of webhooks that refuses each message once.
type secondTime struct {
	mu    sync.Mutex
	tries map[string]int
}

func (h *secondTime) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := r.Header.Get("svix-id")
	if h.tries[id]++; h.tries[id] == 1 {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, "not yet")
	}
}

// most returns how many times the most frequent message has arrived.
func (h *secondTime) most() (most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.tries {
		most = max(most, n)
	}
	return most
}

// letters collects the messages that a mail server accepts.
type letters struct {
	mu  sync.Mutex
	all map[string][]string // by recipient
}

func (l *letters) add(_ string, to []string, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[string][]string{}
	}
	for _, a := range to {
		l.all[a] = append(l.all[a], string(data))
	}
}

func (l *letters) to(address string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[address]
}
