package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/front/look"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/node/doctor"
	"github.com/postrider/postrider/internal/node/doctor/gather"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
)

// Doctor finds nothing wrong with a healthy installation, and names each of the things that a broken one has. Real
// servers answer: a DNS server, mail hosts, web servers, the node itself, and both databases.
func TestDoctor(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		w := newDoctorWorld(t, p)
		r, code := w.examine()
		expect(t, r, map[string]string{"smtp.in not_checked": "--from", "host.source ok": "127.0.0.1",
			"web.public_url ok": "as seen from this machine", "smtp.ehlo ok": "answers as " + doctorHost,
			"domains ok": "1 of 1 domains", "database.commit ok": "A commit takes", "secret_key ok": "the one of this",
			"dns.validation ok": "validate signatures", "block_list ok": "127.0.0.1, 127.0.0.3",
			"smtp.certificate ok": "89 days",
			"web.certificate ok":  "89 days", "certificates ok": "1 certificates", "clock.world ok": "differ by less",
			"smtp.out ok": "provider.example", "mx.host ok": "bounce_host, inbound_host", "notices ok": "notices@acme.example"})
		if code != 0 || r.Status != doctor.OK {
			t.Errorf("exit code %d, status %s", code, r.Status)
		}
		for _, c := range brokenSetups(w) {
			t.Run(c.name, func(t *testing.T) {
				restore := w.zone.keep()
				before := map[string]string{}
				for name, value := range c.vars {
					before[name] = p.vars["POSTRIDER_"+name]
					p.vars["POSTRIDER_"+name] = value
				}
				if c.change != nil {
					c.change()
				}
				r, code := w.examine(c.args...)
				expect(t, r, c.want)
				if code != c.code {
					t.Errorf("exit code %d, want %d", code, c.code)
				}
				restore()
				for name, value := range before {
					p.vars["POSTRIDER_"+name] = value
				}
				w.backedUp(time.Now())
			})
		}
	})
}

// brokenSetup is a change to the healthy world, and what doctor says then.
type brokenSetup struct {
	name   string
	vars   map[string]string // settings
	change func()
	args   []string
	want   map[string]string // see expect
	code   int
}

func brokenSetups(w *doctorWorld) []brokenSetup {
	t, z := w.t, w.zone
	nobody, missing := "127.0.0.9", filepath.Join(t.TempDir(), "none")
	relay := smtptest.NewServer(t, smtptest.Config{Users: map[string]string{"user": "right"}})
	relayVars := func(name, value string) map[string]string {
		vars := map[string]string{"TRANSPORT": "relay", "RELAY_ADDR": relay.Addr, "RELAY_USERNAME": "user",
			"RELAY_PASSWORD": "right"}
		vars[name] = value
		return vars
	}
	readable := filepath.Join(t.TempDir(), "key")
	key, err := os.ReadFile(w.vars["POSTRIDER_TLS_KEY_FILE"])
	if err = errors.Join(err, os.WriteFile(readable, key, 0o600), os.Chmod(readable, 0o644)); err != nil {
		t.Fatal(err)
	}
	return []brokenSetup{
		{name: "wrong PTR", change: func() { z.set(t, "3.0.0.127.in-addr.arpa. 60 IN PTR vps7.provider.example.") },
			want: map[string]string{"host.ptr failure": "127.0.0.3: The PTR record leads to vps7.provider.example"}, code: 2},
		{name: "other EHLO name", vars: map[string]string{"SMTP_IN_LISTEN": stub(t, "127.0.0.1:0", "exim.acme.example")},
			want: map[string]string{"smtp.ehlo failure": "calls itself exim.acme.example"}, code: 2},
		{name: "receiving port closed", vars: map[string]string{"SMTP_IN_LISTEN": nobody + ":" + w.port},
			want: map[string]string{"smtp.ehlo failure": "No program answers"}, code: 2},
		{name: "port 25 closed out", change: func() { z.set(t, "mx.provider.example. 60 IN A "+nobody) },
			want: map[string]string{"smtp.out failure": "No mail host of provider.example can be reached",
				"host.source not_checked": "No connection"}, code: 2},
		{name: "MX leads nowhere", vars: map[string]string{"INBOUND_HOST": "in.acme.example"},
			change: func() { z.set(t, "in.acme.example. 60 IN A "+nobody) },
			want: map[string]string{"mx.host failure": "inbound_host in.acme.example (127.0.0.9): No mail host answers",
				"dmarc.reports warning": "*._report._dmarc.in.acme.example",
				"certificates failure":  "does not cover the host in.acme.example"}, code: 2},
		{name: "MX without address", vars: map[string]string{"INBOUND_HOST": "gone.acme.example"},
			want: map[string]string{"mx.host failure": "gone.acme.example: The name has no address record",
				"dmarc.reports warning": "*._report._dmarc.gone.acme.example",
				"certificates failure":  "does not cover the host gone.acme.example"}, code: 2},
		{name: "expired certificate", vars: map[string]string{"PUBLIC_URL": w.proxy(w.ca.Expired(doctorHost))},
			want: map[string]string{"web.certificate failure": "it expired on"}, code: 2},
		{name: "certificate of another host", vars: map[string]string{
			"PUBLIC_URL": w.proxy(w.ca.Until(time.Now().Add(90*24*time.Hour), "other.example"))},
			want: map[string]string{"web.certificate failure": "does not cover the host " + doctorHost}, code: 2},
		{name: "certificate ends soon", vars: map[string]string{
			"PUBLIC_URL": w.proxy(w.ca.Until(time.Now().Add(5*24*time.Hour+time.Hour), doctorHost))},
			want: map[string]string{"web.certificate warning": "expires in 5 days"}, code: 1},
		{name: "something else at public_url", vars: map[string]string{"PUBLIC_URL": strings.Replace(timeServer(t, 0),
			"127.0.0.1", doctorHost, 1)},
			want: map[string]string{"web.public_url failure": "Something else", "web.certificate failure": "does not cover"},
			code: 2},
		{name: "SPF without include", change: func() {
			z.set(t, `send.acme.example. 60 IN TXT "v=spf1 include:other.example ~all"`)
		}, want: map[string]string{"domain.spf failure": "Add include:" + doctorHost, "domains failure": "0 of 1"}, code: 2},
		{name: "SPF without the address", change: func() { z.set(t, doctorHost+`. 60 IN TXT "v=spf1 ip4:192.0.2.7 -all"`) },
			want: map[string]string{"spf.include failure": "to the record before its last term"}, code: 2},
		{name: "missing DKIM key", change: func() { z.remove("postrider._domainkey.acme.example", dns.TypeTXT) },
			want: map[string]string{"domain.dkim failure": "postrider._domainkey.acme.example (team Acme)",
				"domains failure": "0 of 1"}, code: 2},
		{name: "no DMARC", change: func() { z.remove("_dmarc.acme.example", dns.TypeTXT) },
			want: map[string]string{"dmarc warning": "Add a TXT record at _dmarc.acme.example",
				"domain.dmarc warning": "acme.example (team Acme)", "domains warning": "0 of 1"}, code: 1},
		{name: "wrong clock", vars: map[string]string{"DOCTOR_CLOCK_URL": timeServer(t, time.Hour) + "/?token=hunter"},
			want: map[string]string{"clock.world failure": "/?token=<secret>: The clock of this machine is"}, code: 2},
		{name: "wrong secret key", vars: map[string]string{"SECRET_KEY": strings.Repeat("77", 32)},
			want: map[string]string{"secret_key failure": "is not the one of this installation",
				"web.public_url not_checked": "only the secret key shows"}, code: 2},
		{name: "key of a certificate that others can read", vars: map[string]string{"TLS_KEY_FILE": readable},
			want: map[string]string{"secret_files warning": "tls_key_file " + readable}, code: 1},
		{name: "old backup", change: func() { w.backedUp(time.Now().Add(-9 * 24 * time.Hour)) },
			want: map[string]string{"backup failure": "9 days ago"}, code: 2},
		{name: "listed address", change: func() { z.set(t, "3.0.0.127.ip.list.example. 60 IN A 127.0.0.4") },
			want: map[string]string{"block_list failure": "127.0.0.3 in ip.list.example"}, code: 2},
		{name: "listed name, in a list with a key", vars: map[string]string{
			"DOCTOR_NAME_LISTS": "abcd1234efgh5678.key.list.example"}, change: func() {
			z.set(t, "test.abcd1234efgh5678.key.list.example. 60 IN A 127.0.0.2",
				doctorHost+".abcd1234efgh5678.key.list.example. 60 IN A 127.0.0.2")
		}, want: map[string]string{"block_list failure": doctorHost + " in (key).key.list.example"}, code: 2},
		{name: "list refuses", change: func() { z.set(t, doctorHost+".name.list.example. 60 IN A 127.255.255.254") },
			want: map[string]string{"block_list not_checked": "name.list.example: The block list does not answer"}},
		{name: "dead list", change: func() {
			z.set(t, "1.0.0.127.ip.list.example. 60 IN A 127.0.0.2", "3.0.0.127.ip.list.example. 60 IN A 127.0.0.2")
		}, want: map[string]string{"block_list not_checked": "ip.list.example: The block list does not have the test"}},
		{name: "resolver without validation", change: func() { z.careless = true },
			want: map[string]string{"dns.validation warning": "does not validate signatures"}, code: 1},
		{name: "disk full", vars: map[string]string{"BLOB_URL": "file:///proc"}, // a file system without any space
			want: map[string]string{"disk.space failure": "blob_url /proc", "blobs failure": "/proc"}, code: 2},
		{name: "missing folder of blobs", vars: map[string]string{"BLOB_URL": missing},
			want: map[string]string{"blobs failure": missing + ": The files of emails cannot be stored and read"}, code: 2},
		{name: "bucket away", vars: map[string]string{"BLOB_URL": "s3://mail?region=x&endpoint=http://127.0.0.1:1"},
			want: map[string]string{"blobs failure": "s3://mail: The files of emails cannot be stored and read"}, code: 2},
		{name: "wrong password of a relay", vars: relayVars("RELAY_PASSWORD", "wrong"),
			want: map[string]string{"smtp.relay failure": "smtp auth: 535"}, code: 2},
		{name: "relay without TLS", vars: relayVars("RELAY_TLS", "required"),
			want: map[string]string{"smtp.relay failure": "offers no TLS, and TLS is required"}, code: 2},
		{name: "relay", vars: relayVars("RELAY_PASSWORD", "right"), want: map[string]string{
			"smtp.relay ok": "accepts the user name and the password"}},
		{name: "invalid file of destinations", vars: map[string]string{"DESTINATIONS_FILE": missing},
			want: map[string]string{"destinations failure": missing}, code: 2},
		{name: "notices from an unknown domain", vars: map[string]string{"NOTICE_FROM": "a@unknown.example"},
			want: map[string]string{"notices failure": "unknown.example was not added"}, code: 2},
		{name: "one domain", args: []string{"--domain", "ACME.example."}, want: map[string]string{"domains ok": "1 of 1"}},
		{name: "one team", args: []string{"--team", "Acme"}, want: map[string]string{"domains ok": "1 of 1"}},
		{name: "unknown domain", args: []string{"--domain", "x.example"},
			want: map[string]string{"domains not_checked": "no such domain"}},
	}
}

// Doctor also works without a database, and says what is missing. Its own mistakes have an exit code of their own.
func TestDoctorWithoutAnInstallation(t *testing.T) {
	t.Parallel()
	z := startZone(t)
	dir := filepath.Join(t.TempDir(), "none")
	p := &installation{t: t, dir: dir, vars: map[string]string{"GOGC": "100", "POSTRIDER_DATA_DIR": dir,
		"POSTRIDER_HOSTNAME": "vm", "POSTRIDER_DNS_SERVERS": z.addr, "POSTRIDER_DOCTOR_CLOCK_URL": "https://time.example/",
		"POSTRIDER_DOCTOR_SIGNED_NAME": "signed.example", "POSTRIDER_DOCTOR_BOGUS_NAME": "",
		"POSTRIDER_DOCTOR_MAIL_DOMAINS": "provider.example", "POSTRIDER_PUBLIC_URL": "http://localhost:9"}}
	out, errOut, code := p.command("doctor")
	for _, text := range []string{"Failures (", "  host.name: vm\n    hostname is not a name", "    To do: Set hostname",
		"database.version", "run `postrider", "secret_key", "Not checked (", "OK (", " failures, "} {
		if !strings.Contains(out, text) {
			t.Errorf("%q is missing:\n%s", text, out)
		}
	}
	if code != 2 || errOut != "" || strings.Contains(out, "\x1b") || strings.Index(out, "Failures") != 0 {
		t.Errorf("exit code %d, said %q, printed\n%s", code, errOut, out)
	}
	p.vars["POSTRIDER_SECRET_KEY"] = strings.Repeat("77", 32)
	out, errOut, _ = p.command("doctor", "--json")
	var r doctor.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: printed %q, said %q", err, out, errOut)
	}
	i := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.ID == "secret_key" })
	if i < 0 || r.Findings[i].Status != doctor.NotChecked {
		t.Errorf("a key that is compared with nothing: %+v", r.Findings)
	}
	for _, c := range []struct{ say, args string }{
		{"unknown flag --colour", "--colour=1"},
		{"--team", "--team Acme"},
		{"exclude each other", "--team A --domain b.example"},
		{"needs an API key", "--from https://other.example"},
		{"sent in clear", "--from http://other.example --from-key re_x"},
		{"must be a URL", "--from other --from-key re_x"},
		{"unexpected", "now"},
	} {
		out, errOut, code := p.command(append([]string{"doctor"}, strings.Fields(c.args)...)...)
		if code != exitUnable || out != "" || !strings.Contains(errOut, c.say) {
			t.Errorf("%s: exit code %d, printed %q, said %q", c.args, code, out, errOut)
		}
	}
}

// A name server of a team's domain cannot send commands to the operator's terminal.
func TestDoctorPrintsNoEscapeSequences(t *testing.T) {
	t.Parallel()
	w := newDoctorWorld(t, migratedInstallation(t, "sqlite"))
	w.zone.set(t, `_dmarc.acme.example. 60 IN TXT "v=DMARC1; p=\027[2Jmine\194\155"`)
	out, _, code := w.command("doctor")
	if code != exitFailures || !strings.Contains(out, "p=?[2Jmine?") {
		t.Errorf("exit code %d, printed\n%s", code, out)
	}
	if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
		t.Errorf("the output has a control character: %q", out[max(0, i-20):])
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	word := strings.Repeat("x", 39)
	var w strings.Builder
	wrap(&w, "    To do: ", strings.Repeat(word+" ", 4))
	want := "    To do: " + word + " " + word + "\n      " + word + " " + word + "\n"
	if w.String() != want {
		t.Errorf("%q, want %q", w.String(), want)
	}
}

// Another installation looks from outside: it reaches port 25 and public_url, and sees the DNS.
func TestDoctorFromOutside(t *testing.T) {
	t.Parallel()
	w := newDoctorWorld(t, migratedInstallation(t, "sqlite"))
	other := migratedInstallation(t, "sqlite")
	other.vars["POSTRIDER_DNS_SERVERS"] = w.zone.addr
	other.vars["POSTRIDER_ACME_CA_FILE"] = w.vars["POSTRIDER_ACME_CA_FILE"]
	other.vars["POSTRIDER_HOSTNAME"] = "mail.other.example"
	key := other.key("Other")
	far := other.start()
	w.vars["POSTRIDER_FROM_KEY"] = key
	r, code := w.examine("--from", far.url)
	expect(t, r, map[string]string{"smtp.in ok": "Others reach port 25, which answers as " + doctorHost,
		"outside ok": "Others find", "web.public_url ok": "as seen from outside", "web.certificate ok": "89 days"})
	if code != 0 || r.From != far.url {
		t.Errorf("exit code %d, from %q", code, r.From)
	}
	if n := far.count(`SELECT COUNT(*) FROM audit_log WHERE action = 'doctor.looked'`); n != 1 {
		t.Errorf("the audit log has %d entries", n)
	}
	restore := w.zone.keep()
	w.zone.set(t, doctorHost+". 60 IN A 127.0.0.9", "9.0.0.127.in-addr.arpa. 60 IN PTR "+doctorHost+".")
	r, code = w.examine("--from", far.url)
	expect(t, r, map[string]string{"smtp.in failure": "cannot connect to port 25", "host.source failure": "127.0.0.1",
		"mx.host failure": "No mail host answers", "web.public_url failure": "cannot be opened from outside"})
	restore()
	if code != exitFailures {
		t.Errorf("exit code %d", code)
	}
	r, code = w.examine("--from", far.url, "--from-key", "re_wrong")
	expect(t, r, map[string]string{"outside warning": "it answers 401", "smtp.in not_checked": "did not look"})
	if code != exitWarnings {
		t.Errorf("exit code %d", code)
	}
	r, _ = w.examine("--from", "http://127.0.0.1:1", "--from-key", "re_x")
	expect(t, r, map[string]string{"outside warning": "cannot be reached"})
}

// Strangers cannot use the operation that looks at others: neither without a key, nor with one that may only send.
// Private addresses are not reached even with the right key.
func TestStrangersDoNotLook(t *testing.T) {
	t.Parallel()
	z := startZone(t)
	z.set(t, "inner.example. 60 IN A 10.0.0.1", "meta.example. 60 IN A 169.254.169.254",
		"inner.example. 60 IN MX 10 vault.inner.example.", `inner.example. 60 IN TXT "join=k8s-token"`)
	p := migratedInstallation(t, "sqlite")
	p.vars["POSTRIDER_DNS_SERVERS"], p.vars["POSTRIDER_ALLOW_LOOPBACK"] = z.addr, "false"
	full, sending := p.key("Acme"), p.key("Acme", "--sending")
	n := p.start()
	inner := `{"names":["inner.example"],"mail":["inner.example","meta.example"],"url":"http://meta.example/"}`
	for _, c := range []struct {
		name, key, body string
		status          int
		say             string
	}{
		{"no key", "", inner, 401, "API key"},
		{"unknown key", "re_unknown", inner, 401, "API key is invalid"},
		{"key that may only send", sending, inner, 401, "full access"},
		{"no JSON", full, "x", 400, "must be JSON"},
		{"unknown member", full, `{"host":"a"}`, 400, "must be JSON"},
		{"too many names", full, fmt.Sprintf(`{"names":[%s"a.example"]}`, strings.Repeat(`"a.example",`, 10)), 422,
			"at most 10"},
		{"address", full, `{"mail":["10.0.0.1"]}`, 422, "full host name"},
		{"other port", full, `{"mail":["inner.example"],"port":22}`, 422, "25, 465, 587"},
		{"port of web servers", full, `{"mail":["inner.example"],"port":443}`, 422, "25, 465, 587"},
		{"port of mail hosts", full, `{"url":"http://mx.example:25/"}`, 422, "80, 443"},
		{"other port of a page", full, `{"url":"https://a.example:8443/"}`, 422, "80, 443"},
		{"private page", full, `{"url":"http://169.254.169.254/"}`, 422, "public address"},
		{"this machine", full, `{"url":"http://localhost/"}`, 422, "public address"},
	} {
		status, text := n.ask(c.key, http.MethodPost, look.Path, c.body)
		if status != c.status || !strings.Contains(text, c.say) {
			t.Errorf("%s: %d %s, want %d and %q", c.name, status, text, c.status, c.say)
		}
	}
	if status, text := n.ask(full, http.MethodGet, look.Path, ""); status != 404 {
		t.Errorf("GET: %d %s", status, text)
	}
	status, text := n.ask(full, http.MethodPost, look.Path, inner)
	var a look.Answer
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	for _, secret := range []string{"10.0.0.1", "169.254", "vault", "k8s-token"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s of the inner network is shown: %s", secret, text)
		}
	}
	if len(a.Mail) != 2 || a.Web == nil || a.Web.Reached || !strings.Contains(a.Web.Problem, "not public") {
		t.Errorf("%s", text)
	}
	for _, m := range a.Mail {
		if len(m.Talks) != 1 || m.Talks[0].Reached || !strings.Contains(m.Talks[0].Problem, "not public") {
			t.Errorf("%+v", m)
		}
	}
	for range 5 {
		n.ask(full, http.MethodPost, look.Path, `{}`)
	}
	status, text = n.ask(full, http.MethodPost, look.Path, `{}`)
	if status != 429 || !strings.Contains(text, "6 times a minute") {
		t.Errorf("the seventh request: %d %s", status, text)
	}
}

// A team whose requests take long does not keep other teams from asking.
func TestOneLookOfATeam(t *testing.T) {
	t.Parallel()
	silent := testnode.Must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { silent.Close() })
	_, port, _ := net.SplitHostPort(silent.Addr().String())
	z := startZone(t)
	z.set(t, "silent.example. 60 IN A 127.0.0.1")
	p := migratedInstallation(t, "sqlite")
	p.vars["POSTRIDER_DNS_SERVERS"], p.vars["POSTRIDER_ALLOW_LOOPBACK"] = z.addr, "true"
	greedy, other := p.key("Greedy"), p.key("Other")
	n := p.start()
	var all sync.WaitGroup
	all.Go(func() {
		status, text := n.ask(greedy, http.MethodPost, look.Path, `{"mail":["silent.example"],"port":`+port+`}`)
		if status != 200 || !strings.Contains(text, "silent.example") {
			t.Errorf("the first request: %d %s", status, text)
		}
	})
	c := testnode.Must(silent.Accept())
	if status, text := n.ask(greedy, http.MethodPost, look.Path, `{}`); status != 429 ||
		!strings.Contains(text, "in progress") {
		t.Errorf("the second request: %d %s", status, text)
	}
	if status, text := n.ask(other, http.MethodPost, look.Path, `{}`); status != 200 {
		t.Errorf("another team: %d %s", status, text)
	}
	c.Close()
	all.Wait()
	next := n.Config
	next.DenyNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	if err := n.Reload(next); err != nil {
		t.Fatal(err)
	}
	if status, text := n.ask(greedy, http.MethodPost, look.Path, `{"mail":["silent.example"],"port":`+port+`}`); status !=
		200 || !strings.Contains(text, "the address is not public") {
		t.Errorf("after the operator has denied the network: %d %s", status, text)
	}
}

// A node proves with its secret key that it belongs to the installation.
func TestProof(t *testing.T) {
	t.Parallel()
	n := migratedInstallation(t, "sqlite").start()
	const nonce = "0123456789abcdef"
	if status, text := n.ask("", http.MethodGet, gather.ProofPath+"?nonce="+nonce, ""); status != 200 ||
		text != gather.Proof(n.Keys, nonce)[0] || len(text) != 32 {
		t.Errorf("%d %s", status, text)
	}
	for _, wrong := range []string{"", "short", strings.Repeat("x", 65)} {
		if status, text := n.ask("", http.MethodGet, gather.ProofPath+"?nonce="+wrong, ""); status != 422 {
			t.Errorf("%q: %d %s", wrong, status, text)
		}
	}
}

// A node examines the installation once a day, and logs each failure with the advice. A node that starts examines it
// again.
func TestDailyDoctor(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		var log testnode.Logged
		p.log, p.vars["POSTRIDER_LOG_LEVEL"] = &log, "info"
		w := newDoctorWorld(t, p)
		w.zone.set(t, "3.0.0.127.in-addr.arpa. 60 IN PTR vps7.provider.example.")
		w.zone.remove("postrider._domainkey.acme.example", dns.TypeTXT)
		text := ""
		runs := func() int {
			text += log.Take()
			return strings.Count(text, "doctor examined the installation")
		}
		run := func(n *started) {
			t.Helper()
			(&driver{started: n}).cron("cron.doctor")
		}
		run(w.node)
		if runs() != 1 {
			t.Fatalf("the log is\n%s", text)
		}
		for _, line := range []string{`msg="doctor: host.ptr 127.0.0.3"`, `advice="Ask the provider of the address`,
			`msg="doctor: domain.dkim TXT postrider._domainkey.acme.example (team Acme)"`, "failures=3 warnings=0"} {
			if !strings.Contains(text, line) {
				t.Errorf("%s is missing:\n%s", line, text)
			}
		}
		run(w.node)
		if runs() != 1 {
			t.Errorf("it was examined twice a day:\n%s", text)
		}
		if err := w.node.DB.SetFact(t.Context(), db.FactExamined,
			w.node.DB.Now().Add(-25*time.Hour).Format(time.RFC3339Nano)); err != nil {
			t.Fatal(err)
		}
		run(w.node)
		if runs() != 2 {
			t.Errorf("it was not examined after a day:\n%s", text)
		}
		w.node.end()
		again := p.start()
		eventually(t, "a node that starts examines it", func() bool {
			// The start of the runner may undo the move.
			err := again.DB.Update(t.Context(), func(tx *db.Tx) error {
				_, err := again.Queue.Move(t.Context(), tx, "cron.doctor", "", "cron.doctor", "doctor",
					tx.Now().Add(-time.Minute))
				return err
			})
			return err == nil && runs() >= 3
		})
	})
}

// The data of `postrider dev` needs no DNS records and no ports, so doctor examines only what is stored.
func TestDoctorOfDevelopment(t *testing.T) {
	t.Parallel()
	p := migratedInstallation(t, "sqlite")
	p.key("Development")
	p.start()
	examine := func() (out, errOut string, code int) { return p.command("doctor") }
	delete(p.vars, "POSTRIDER_HOSTNAME")
	if out, errOut, _ := examine(); strings.Contains(errOut, "postrider dev") || !strings.Contains(out, "host.name") {
		t.Errorf("without the file of dev, doctor printed\n%s%s", out, errOut)
	}
	file := devKeyFile(p.vars["POSTRIDER_DATA_DIR"])
	if err := os.WriteFile(file, []byte("re_x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errOut, code := examine()
	for _, id := range []string{"host.", "mx.", "smtp.", "web.", "dns.", "notices", "backup"} {
		if strings.Contains(out, "\n  "+id) {
			t.Errorf("doctor examined %s of dev:\n%s", id, out)
		}
	}
	if code != 0 || !strings.Contains(out, "database.commit") || !strings.Contains(out, "secret_key") ||
		!strings.Contains(errOut, "the data of `postrider dev`") || strings.Count(errOut, "\n") != 2 {
		t.Errorf("doctor ended with %d and printed\n%s%s", code, out, errOut)
	}
	p.vars["POSTRIDER_HOSTNAME"] = "mail.example.com"
	if out, _, _ := examine(); !strings.Contains(out, "mail.example.com") || !strings.Contains(out, "host.") {
		t.Errorf("a configured hostname stands for serve, but doctor printed\n%s", out)
	}
}
