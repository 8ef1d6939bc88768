//go:build browser

package e2e

import (
	"bytes"
	_ "embed" // the HTML of the emails
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/lib/freeport"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/smtptest"
)

// sample is a node whose team has used it for a week: with domains in every state, emails that hosts on loopback have
// accepted, deferred and refused, webhooks, keys, logs and received emails. All of it came about as in production. Only
// the node's clock was shifted, so that the week took less than a minute.
type sample struct {
	*node
	names *nameServer
	hosts *smtptest.Server
	mx    string // address for incoming mail
	send  string // key that the emails are sent with
	read  int    // messages at the hosts that were opened, or passed over
	id    map[string]string
}

// readers receive the sample's emails. The local part decides what their host answers.
var readers = []string{"laura.meyer@lakeside.example", "j.okafor@northwind.example", "mia.lindqvist@fjord.example",
	"tom@bakery.example", "priya.natarajan@lakeside.example", "accounts@northwind.example", "sofia.rossi@studio.example",
	"henrik@fjord.example", "amelie.dubois@lakeside.example", "chen.wei@harbour.example", "ops@harbour.example",
	"ines.ferreira@studio.example"}

// subjects of the emails that the sample sends, with the tag of each.
var subjects = []struct{ subject, tag, from string }{
	{"Your invoice 2026-%d", "invoice", "Acme Billing <billing@acme.example>"},
	{"Reset your password", "password", "Acme <security@acme.example>"},
	{"Your order %d has shipped", "shipping", "Acme Orders <orders@acme.example>"},
	{"Welcome to Acme", "welcome", "Acme <hello@acme.example>"},
	{"New sign-in from Firefox on Linux", "security", "Acme <security@acme.example>"},
}

// newSample fills a node with a week of work and leaves it running at the present time.
func newSample(t *testing.T) *sample {
	t.Helper()
	s := &sample{names: startDNS(t), mx: freeport.Addr(t), id: map[string]string{}}
	s.hosts = smtptest.NewServer(t, smtptest.Config{Domain: "mx.lakeside.example", Rcpt: rcptReply,
		TLS: smtptest.NewCA(t).ServerTLS("mx.lakeside.example")})
	_, port, err := net.SplitHostPort(s.hosts.Addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"lakeside", "northwind", "fjord", "bakery", "studio", "harbour"} {
		s.names.add(d+".example. 60 IN MX 10 mx."+d+".example.", "mx."+d+".example. 60 IN A 127.0.0.1")
	}
	s.names.add(`harbour.example. 60 IN TXT "v=spf1 ip4:127.0.0.1 -all"`,
		`_dmarc.harbour.example. 60 IN TXT "v=DMARC1; p=reject"`,
		`elsewhere.example. 60 IN TXT "v=spf1 ip4:127.0.0.1 -all"`)
	s.node = prepare(t, buildShifted(t), nil, "--smtp-in", s.mx)
	env := []string{"POSTRIDER_BENCH_LOOPBACK=1", "POSTRIDER_TRANSPORT=direct", "POSTRIDER_SMTP_PORT=" + port,
		"POSTRIDER_DNS_SERVERS=" + s.names.addr, "POSTRIDER_TRUST_DOMAINS=false", "POSTRIDER_HOSTNAME=mail.postrider.example",
		"POSTRIDER_TRACKING_HOST=mail.postrider.example", "POSTRIDER_NOTICE_FROM=Acme <notices@acme.example>",
		"POSTRIDER_SMTP_SUBMIT_LISTEN=" + freeport.Addr(t)}
	const day = 24 * time.Hour
	for i, ago := range []time.Duration{6*day + 3*time.Hour, 5 * day, 4*day + 5*time.Hour, 3*day + 2*time.Hour,
		2*day + 4*time.Hour, day + 6*time.Hour, 5 * time.Hour, 40 * time.Minute, 0} {
		s.env = append(env[:len(env):len(env)], fmt.Sprintf("%s=%d", clockShift, -int(ago.Seconds())))
		if i > 0 {
			s.cmd.Process.Signal(syscall.SIGTERM)
			s.cmd.Wait()
		}
		s.launch()
		switch i {
		case 0:
			s.begins()
		case 5:
			s.names.remove("events.acme.example.")
		}
		s.works(i)
		if i == 3 { // after the emails of the day before were opened: the broadcast is opened the day after
			s.broadcasts()
			s.settles()
		}
	}
	s.ends()
	return s
}

// rcptReply is what the hosts answer to a recipient; "" accepts it.
func rcptReply(_, to string) string {
	name, _, _ := strings.Cut(to, "@")
	switch name {
	case "gone", "old.account":
		return "550 5.1.1 The email account that you tried to reach does not exist"
	case "full":
		return "452 4.2.2 The recipient's inbox is out of storage space"
	case "busy":
		return "451 4.7.1 Greylisted, please try again in 300 seconds"
	case "strict":
		return "550 5.7.1 Message rejected because of the reputation of the sending address"
	}
	return ""
}

// post posts JSON with the key of full access and returns the id in the response.
func (s *sample) post(path, body string) string {
	s.t.Helper()
	var made struct{ ID string }
	s.must(http.MethodPost, path, body, &made)
	return made.ID
}

// domain adds a domain.
func (s *sample) domain(body string) (id string) {
	s.t.Helper()
	return s.post("/domains", body)
}

// root is the registered domain of the team. The names of most DNS records are relative to it.
const root = "acme.example."

// publish adds the records of a domain to the DNS.
func (s *sample) publish(id string) {
	s.t.Helper()
	var d struct {
		Records []struct {
			Type, Name, Value string
			Priority          int
		}
	}
	s.must(http.MethodGet, "/domains/"+id, "", &d)
	for _, r := range d.Records {
		name := r.Name + "."
		if !strings.HasSuffix(name, root) {
			name += root
		}
		value := r.Value
		switch r.Type {
		case "MX":
			value = fmt.Sprintf("%d %s.", r.Priority, value)
		case "CNAME":
			value += "."
		case "TXT":
			text := ""
			for ; len(value) > 255; value = value[255:] {
				text += `"` + value[:255] + `" `
			}
			value = text + `"` + value + `"`
		}
		s.names.add(name + " 60 IN " + r.Type + " " + value)
	}
}

// begins sets up domains, keys, webhooks and a receiving address on the first day.
func (s *sample) begins() {
	s.t.Helper()
	s.id["domain"] = s.domain(`{"name":"acme.example","capabilities":{"receiving":"enabled"},"open_tracking":true,` +
		`"click_tracking":true,"tracking_subdomain":"links"}`)
	events := s.domain(`{"name":"events.acme.example"}`)
	for _, id := range []string{s.id["domain"], events} {
		s.publish(id)
		s.verifyDomain(id)
	}
	s.must(http.MethodPost, "/domains/"+s.domain(`{"name":"acme-shop.example"}`)+"/verify", "", nil)
	var key struct{ ID, Token string }
	s.must(http.MethodPost, "/api-keys", `{"name":"production","permission":"sending_access"}`, &key)
	s.id["key"], s.send = key.ID, key.Token
	s.post("/api-keys", `{"name":"staging","permission":"full_access"}`)
	s.post("/api-keys", `{"name":"invoices worker","permission":"sending_access","domain_id":"`+s.id["domain"]+`"}`)

	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"received":true}`)
	}))
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		io.WriteString(w, "TypeError: Cannot read properties of undefined (reading 'email_id')")
	}))
	s.t.Cleanup(good.Close)
	s.t.Cleanup(bad.Close)
	s.post("/webhooks", `{"endpoint":"`+good.URL+`/hooks/postrider","events":["email.sent","email.delivered",`+
		`"email.bounced","email.complained","email.opened","email.clicked"]}`)
	s.id["webhook"] = s.post("/webhooks", `{"endpoint":"`+bad.URL+`/legacy/events","events":["email.bounced",`+
		`"email.complained"]}`)
	for _, a := range []string{"press@lakeside.example", "do-not-mail@bakery.example"} {
		s.post("/suppressions", `{"email":"`+a+`"}`)
	}
}

// works opens some emails of the day before, and sends and receives the emails of one day. Hits right after a delivery
// count as those of programs.
func (s *sample) works(day int) {
	s.t.Helper()
	s.opens()
	to := append([]string{}, readers[:6+day%4]...)
	to = append(to, []string{"gone@lakeside.example", "strict@harbour.example", "old.account@fjord.example",
		"gone@bakery.example"}[day%4])
	switch day {
	case 2, 6:
		to = append(to, "complained@resend.dev")
	case 8:
		to = append(readers[:len(readers):len(readers)], "full@studio.example", "busy@northwind.example",
			"gone@northwind.example", "gone@lakeside.example")
	}
	for i, a := range to {
		kind := subjects[(i+day)%len(subjects)]
		subject := kind.subject
		if strings.Contains(subject, "%d") {
			subject = fmt.Sprintf(subject, 1040+10*day+i)
		}
		s.sends(a, kind.from, subject, kind.tag)
	}
	s.settles()
	s.receives(day)
}

// sends sends an email with the key of the team's program.
func (s *sample) sends(to, from, subject, tag string) {
	s.t.Helper()
	name, _, _ := strings.Cut(to, "@")
	name, _, _ = strings.Cut(name, ".")
	answer, err := caller{addr: s.addr, bearer: s.send}.ask(s.t.Context(), http.MethodPost, "/emails", map[string]any{
		"from": from, "to": to, "subject": subject, "html": letter(name, subject),
		"text": "Hello " + name + ",\n\n" + subject + ". The details are in your account.\n\nAcme Inc., Harbour Street 12",
		"tags": []map[string]string{{"name": "type", "value": tag}}}, "User-Agent", "resend-node:6.4.0")
	if err != nil || answer.status != http.StatusOK {
		s.t.Fatalf("send %s: %+v, %v", subject, answer, err)
	}
}

//go:embed testdata/letter.html
var letterHTML string

// letter returns the HTML of an email.
func letter(name, subject string) string {
	return strings.NewReplacer("SUBJECT", subject, "NAME", strings.ToUpper(name[:1])+name[1:]).Replace(letterHTML)
}

// settles waits until each email has a result, or waits for its next attempt.
func (s *sample) settles() {
	s.t.Helper()
	eventually(s.t, time.Minute, "all emails have a result", func() bool {
		var list struct {
			Data []struct {
				Last string `json:"last_event"`
			}
		}
		s.must(http.MethodGet, "/emails?limit=60", "", &list)
		for _, e := range list.Data {
			if e.Last == "queued" || e.Last == "sent" {
				return false
			}
		}
		return true
	})
}

var trackedLink = regexp.MustCompile(`https?://([^/"]+)(/[co]/[^"]+)`)

// opens loads the images of two thirds of the messages since the last call, and follows the link in one third.
func (s *sample) opens() {
	s.t.Helper()
	all := s.hosts.Messages()
	for ; s.read < len(all); s.read++ {
		html := strings.ReplaceAll(strings.ReplaceAll(string(all[s.read].Data), "=\r\n", ""), "=3D", "=")
		for _, m := range trackedLink.FindAllStringSubmatch(html, -1) {
			if s.read%3 == 0 || s.read%3 == 1 && strings.HasPrefix(m[2], "/c/") {
				continue
			}
			r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.addr+m[2], nil)
			if err != nil {
				s.t.Fatal(err)
			}
			r.Host = m[1]
			r.Header.Set("User-Agent",
				"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko)")
			answer, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				s.t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode >= http.StatusBadRequest {
				s.t.Fatalf("a tracked link answers with %s", answer.Status)
			}
		}
	}
}

// receives delivers the mail of a day to the team's domain.
func (s *sample) receives(day int) {
	s.t.Helper()
	mail := func(from, subject, text string) {
		s.t.Helper()
		raw := fmt.Sprintf("From: %s\r\nTo: Acme <support@acme.example>\r\nSubject: %s\r\nDate: %s\r\n"+
			"Message-ID: <%d.%d@harbour.example>\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n%s\r\n",
			from, subject, time.Now().Format(time.RFC1123Z), day, len(subject), text)
		if err := inject(s.mx, "support@acme.example", []byte(raw)); err != nil {
			s.t.Fatalf("receive %s: %v", subject, err)
		}
	}
	switch day {
	case 1:
		mail("Chen Wei <chen.wei@harbour.example>", "Question about invoice 2026-1041",
			"Hello,\r\n\r\ncould you add our VAT number?")
	case 4:
		mail("Sofia Rossi <sofia.rossi@studio.example>", "Re: Your order 1063 has shipped", "Thank you, it arrived today.")
	case 8:
		mail("Henrik <henrik@fjord.example>", "Cannot sign in", "The link in the email says that it has expired.")
		parts := map[string][]byte{"picture.png": picture(s.t), "report.pdf": random(s.t, 300_000),
			"naïve café.txt": []byte("one\r\ntwo\r\n")}
		if err := inject(s.mx, "anyone@acme.example", multipart(parts)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// picture returns a PNG image.
func picture(t *testing.T) []byte {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, 240, 120))
	for x := range 240 {
		for y := range 120 {
			m.SetNRGBA(x, y, color.NRGBA{R: uint8(x / 2), G: 110, B: uint8(90 + y/2), A: 255})
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// broadcasts sends a broadcast to the people.
func (s *sample) broadcasts() {
	s.t.Helper()
	segment := s.post("/segments", `{"name":"Customers"}`)
	for _, a := range readers {
		s.post("/contacts", `{"email":"`+a+`","segments":["`+segment+`"]}`)
	}
	s.id["broadcast"] = s.post("/broadcasts", `{"segment_id":"`+segment+`","from":"Acme <news@acme.example>",`+
		`"subject":"What is new in November","name":"November news","html":"<p>Faster exports, and a new `+
		`<a href=\"https://acme.example/news\">calendar</a>.</p>`+
		`<p><a href=\"{{{RESEND_UNSUBSCRIBE_URL}}}\">Unsubscribe</a></p>"}`)
	s.must(http.MethodPost, "/broadcasts/"+s.id["broadcast"]+"/send", "", nil)
	eventually(s.t, time.Minute, "the broadcast is sent", func() bool {
		var b struct{ Status string }
		s.must(http.MethodGet, "/broadcasts/"+s.id["broadcast"], "", &b)
		return b.Status == "sent"
	})
}

// ends adds what is unfinished at the present time, and finds the ids of what the pages show.
func (s *sample) ends() {
	s.t.Helper()
	s.id["unverified"] = s.domain(`{"name":"shop.acme.example","capabilities":{"receiving":"enabled"}}`)
	s.names.add(`send.shop.acme.example. 60 IN TXT "v=spf1 include:_spf.mailhost.example ~all"`)
	s.must(http.MethodPost, "/domains/"+s.id["unverified"]+"/verify", "", nil)
	s.domain(`{"name":"billing.acme.example"}`)
	s.id["scheduled"] = s.post("/emails", `{"from":"Acme <hello@acme.example>","to":"laura.meyer@lakeside.example",`+
		`"subject":"Your trial ends tomorrow","text":"Choose a plan.","scheduled_at":"in 20 hours"}`)
	for _, body := range []string{`{"from":"hello@acme.example","to":"laura","subject":"Welcome","text":"x"}`,
		`{"from":"hello@elsewhere.example","to":"tom@bakery.example","subject":"Welcome","text":"x"}`} {
		if status, err := s.call(s.t.Context(), http.MethodPost, "/emails", body, nil); err != nil || status < 400 {
			s.t.Fatalf("a wrong email: %d, %v", status, err)
		}
	}
	s.post("/team/invitations", `{"email":"henrik@fjord.example","role":"member"}`)
	s.reported()
	s.forwards()
	s.asks()

	first := func(path string) string {
		s.t.Helper()
		var list struct{ Data []struct{ ID string } }
		s.must(http.MethodGet, path, "", &list)
		if len(list.Data) == 0 {
			s.t.Fatalf("GET %s lists nothing", path)
		}
		return list.Data[0].ID
	}
	for name, path := range map[string]string{
		"delivered": "/emails?limit=1&to=laura.meyer@lakeside.example&status=delivered",
		"bounced":   "/emails?limit=1&status=bounced", "deferred": "/emails?limit=1&status=delivery_delayed",
		"received": "/emails/receiving?limit=1", "suppression": "/suppressions?limit=1", "log": "/logs?limit=1",
		"contact": "/contacts?limit=1",
		"message": "/webhooks/" + s.id["webhook"] + "/events?limit=1"} {
		s.id[name] = first(path)
	}
	for _, m := range s.hosts.Messages() {
		if _, rest, ok := strings.Cut(string(m.Data), "/unsubscribe/"); ok {
			s.id["unsubscribe"], _, _ = strings.Cut(rest, ">")
		}
	}
	var shared struct{ URL string }
	s.must(http.MethodPost, "/emails/"+s.id["delivered"]+"/share", `{"expires_in":"1 hour"}`, &shared)
	link, err := url.Parse(shared.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	s.id["shared"] = link.RequestURI()
}

// forwards adds rules that forward mail. The owner of the address has not answered yet.
func (s *sample) forwards() {
	s.t.Helper()
	path := "/domains/" + s.id["domain"] + "/forwards"
	s.post(path, `{"match":"sales","address":"tom@bakery.example"}`)
	s.id["rule"] = s.post(path, `{"match":"*","url":"https://crm.acme.example/mail"}`)
	eventually(s.t, time.Minute, "the confirmation email arrives", func() bool {
		for _, m := range s.hosts.Messages() {
			if _, rest, ok := strings.Cut(mailparse.Parse(m.Data).Text(), "/forwarding/confirm/"); ok {
				s.id["forwarding"] = strings.Fields(rest)[0]
				return true
			}
		}
		return false
	})
}

// asks connects an app that needs approval for its emails, and lets it request one.
func (s *sample) asks() {
	s.t.Helper()
	tokens, err := granted(s.t.Context(), s.addr, key, "emails:send emails:read domains:read")
	if err != nil {
		s.t.Fatal(err)
	}
	s.must(http.MethodPatch, "/oauth/grants/"+tokens.grantID(s.t), `{"limits":{"approval":true}}`, nil)
	answer, err := caller{addr: s.addr, bearer: tokens.Access}.ask(s.t.Context(), http.MethodPost, "/approvals",
		map[string]any{"from": "Acme <hello@acme.example>", "to": []string{"laura.meyer@lakeside.example"},
			"subject": "Your refund is on its way", "html": letter("laura", "Your refund is on its way"), "text": "Dear Laura"})
	var made struct{ ID string }
	if err == nil && answer.status == http.StatusCreated {
		err = json.Unmarshal([]byte(answer.text), &made)
	}
	if err != nil || made.ID == "" {
		s.t.Fatalf("request an approval: %+v, %v", answer, err)
	}
	s.id["approval"] = made.ID
	s.id["consent"] = authorizePath(anyLoopback, grants.CLI, "full_access")
}

// remove removes all records of a name and of the names below it.
func (s *nameServer) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = slices.DeleteFunc(s.records, func(rr dns.RR) bool { return dns.IsSubDomain(name, rr.Header().Name) })
}
