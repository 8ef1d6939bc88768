package forwards_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/dkim/dkimtest"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/delivery"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// fixture is a node whose team Acme receives at in.acme.example, and a mail host for all other domains.
type fixture struct {
	*testnode.Node
	t        *testing.T
	rules    *forwards.Service
	received *receiving.Service
	webhooks *webhooks.Service
	delivery *delivery.Service
	host     *smtptest.Server
	domain   domains.Domain
	keys     zone // DKIM keys by name
	spam     string
	reply    string // of the host to RCPT; "" accepts

	mu    sync.Mutex
	reads int         // of received messages
	calls error       // of calls, instead of calling
	slow  atomic.Bool // look-ups of keys never end
	mails []mail
	told  []string // texts of notices to teams
}

type mail struct{ to, subject, text string }

type zone map[string]string

func (z zone) lookup(_ context.Context, name string) ([]string, error) {
	if text, ok := z[name]; ok {
		return []string{text}, nil
	}
	return nil, fmt.Errorf("look up %s: %w", name, resolve.ErrNotFound)
}

func each(t *testing.T, run func(t *testing.T, f *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { run(t, newFixture(t, d)) })
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	n := testnode.New(t, d, testnode.Options{MaxSize: 4 << 20, Guard: netguard.Options{AllowLoopback: true}})
	f := &fixture{Node: n, t: t, keys: zone{}}
	f.host = smtptest.NewServer(t, smtptest.Config{Rcpt: func(string, string) string {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.reply
	}})
	f.build(f.host.Addr)
	on, off := true, false
	f.domain = f.Verified(f.Acme.TeamID, domains.NewDomain{Name: "in.acme.example",
		Capabilities: domains.Capabilities{Sending: &off, Receiving: &on}})
	return f
}

// build builds the services, which deliver to a host at an address.
func (f *fixture) build(host string) {
	n, d := f.Node, f.DB
	f.webhooks = testnode.Must(webhooks.New(webhooks.Config{AllowHTTP: true}, webhooks.Deps{DB: d, Queue: n.Queue,
		Keys: n.Keys, Guard: n.Guard, Domains: n.Domains, Log: n.Log, Notify: n.Quotas.Notify}))
	f.rules = testnode.Must(forwards.New(forwards.Config{Hostname: "mx.postrider.test", PublicURL: testnode.PublicURL},
		f.deps()))
	n.Recorder.Listen(f.rules)
	f.received = testnode.Must(receiving.New(receiving.Config{Hostname: "mx.postrider.test",
		Hosts: []string{"mx.postrider.test"}, PublicURL: testnode.PublicURL}, receiving.Deps{DB: d, Quotas: n.Quotas,
		Recorder: n.Recorder, Blobs: n.Blobs, Keys: n.Keys, Domains: n.Domains, Emails: n.Emails, Teams: n.Teams,
		Log: n.Log, Forward: func(ctx context.Context, tx *db.Tx, all []emails.Arrival) error {
			return f.rules.Arrived(ctx, tx, all)
		}}))
	f.deliverTo(host)
}

func (f *fixture) deps() forwards.Deps {
	return forwards.Deps{DB: f.DB, Queue: f.Queue, Keys: f.Keys, Domains: f.Domains, Emails: f.Emails, Teams: f.Teams,
		Log: f.Log, LookupTXT: f.lookup, CheckURL: f.webhooks.CheckURL,
		Received: func(ctx context.Context, teamID, emailID string) (m forwards.Message, err error) {
			f.mu.Lock()
			f.reads++
			f.mu.Unlock()
			o, err := f.received.Original(ctx, teamID, emailID)
			if err != nil {
				return m, err
			}
			return forwards.Message{From: o.From, Subject: o.Subject, MessageID: o.MessageID, MailFrom: o.Origin.MailFrom,
				UTF8: o.Origin.UTF8,
				Spam: f.spam, Authentication: o.Authentication, Raw: o.Raw, TraceBytes: o.TraceBytes, Close: o.Close}, nil
		},
		Payload: func(ctx context.Context, teamID, emailID string) (payload string, err error) {
			e, err := f.received.Event(ctx, teamID, emailID)
			if err != nil {
				return "", err
			}
			err = f.DB.Update(ctx, func(tx *db.Tx) error {
				_, payload, err = f.webhooks.Render(ctx, tx, &e)
				return err
			})
			return payload, err
		},
		Call: func(ctx context.Context, teamID, id, url string, body []byte, keys [][]byte) (int, error) {
			if f.calls != nil {
				return 0, f.calls
			}
			return f.webhooks.CallSigned(ctx, teamID, id, url, nil, body, keys...)
		},
		Notify: func(_ context.Context, tx *db.Tx, teamID, subject, text string) error {
			tx.AfterCommit(func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.told = append(f.told, subject+"\n"+text)
			})
			return nil
		},
		Mail: func(_ context.Context, tx *db.Tx, to, subject, text string) error {
			tx.AfterCommit(func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.mails = append(f.mails, mail{to, subject, text})
			})
			return nil
		}}
}

// lookup looks up a key, or waits until the caller gives up.
func (f *fixture) lookup(ctx context.Context, name string) ([]string, error) {
	if f.slow.Load() {
		<-ctx.Done()
		return nil, fmt.Errorf("look up %s: %w: %w", name, resolve.ErrTemporary, ctx.Err())
	}
	return f.keys.lookup(ctx, name)
}

// deliverTo builds the service that delivers to the host at an address.
func (f *fixture) deliverTo(host string) {
	f.t.Helper()
	d := f.DB
	_, port, err := net.SplitHostPort(host)
	f.Must(err)
	number, err := strconv.Atoi(port)
	f.Must(err)
	dns := resolve.Fake{AddrRecords: map[string][]netip.Addr{}, MXRecords: map[string][]resolve.MX{}}
	for _, name := range []string{"target.example", "other.example"} {
		dns.MXRecords[name] = []resolve.MX{{Host: "mx.target.example", Pref: 10}}
	}
	dns.AddrRecords["mx.target.example"] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	b := testnode.Must(broadcasts.New(broadcasts.Config{MaxSize: 40 << 20, BounceLimit: 5, ComplaintLimit: 0.3},
		broadcasts.Deps{DB: d, Queue: f.Queue, Recorder: f.Recorder, Emails: f.Emails, Contents: f.Contents,
			Domains: f.Domains, Contacts: f.Contacts, Teams: f.Teams, Log: f.Log, Notify: f.Quotas.Notify}))
	f.delivery = testnode.Must(delivery.New(delivery.Config{Transport: delivery.Direct, Hostname: "mx.postrider.test",
		SMTPPort: number, AllowPrivate: true, LaneConnections: 5}, delivery.Deps{DB: d, Queue: f.Queue,
		Recorder: f.Recorder, Emails: f.Emails, Domains: f.Domains, Keys: f.Keys, DNS: dns, Blobs: f.Blobs,
		Outbox: capture.New(f.Blobs, nil), Guard: f.Guard, Broadcasts: b, Log: f.Log, OnLimitRaised: func(string) {}}))
}

// run runs all jobs until there are none, or as many as given wait for a later time.
func (f *fixture) run(left int) {
	f.t.Helper()
	stop := f.Run(append([]jobs.Kind{f.delivery.Kind()}, f.rules.Kinds()...)...)
	defer stop()
	// One statement counts both. With a statement for each count, a job that is claimed between the two passes for one
	// that waits.
	testnode.Until(f.t, fmt.Sprintf("%d jobs are left", left), func() bool {
		var all, busy int
		f.Must(f.DB.QueryRow(f.t.Context(), `SELECT COUNT(*), COUNT(*) FILTER (WHERE holder IS NOT NULL OR run_at <= $1)
			FROM jobs`, f.DB.Now().UnixMicro()).Scan(&all, &busy))
		return all == left && busy == 0
	})
}

// deliver sends a message to the node as a stranger's host does.
func (f *fixture) deliver(raw, from string, to ...string) {
	f.t.Helper()
	f.deliverWith(smtpserver.MailOptions{}, raw, from, to...)
}

func (f *fixture) deliverWith(o smtpserver.MailOptions, raw, from string, to ...string) {
	f.t.Helper()
	c, err := f.received.Open(f.t.Context(), smtpserver.Peer{Addr: netip.MustParseAddrPort("192.0.2.9:25"),
		Hello: "mail.author.example"})
	f.Must(err)
	defer c.Close()
	f.Must(c.Mail(f.t.Context(), from, o))
	for _, a := range to {
		f.Must(c.Rcpt(f.t.Context(), a))
	}
	_, err = c.Data(f.t.Context(), strings.NewReader(raw))
	f.Must(err)
}

// signed returns a message with an author's DKIM signature, and a body that programs like to change.
func (f *fixture) signed(header string) string {
	f.t.Helper()
	raw := "From: Ann <ann@author.example>\r\nTo: sales@in.acme.example\r\nSubject: An  offer\r\n" +
		"Message-ID: <" + id.New() + "@author.example>\r\nDate: Tue, 01 Dec 2026 10:00:00 +0000\r\n" + header +
		"\r\n.dots\r\n..two  \r\nFrom here\r\n\r\n\r\n"
	key, err := dkimtest.RSA()
	f.Must(err)
	f.keys["a._domainkey.author.example"] = key.Record()
	fields, err := dkim.Sign([]byte(raw), f.DB.Now(), dkim.Signer{Domain: "author.example", Selector: "a", Key: key})
	f.Must(err)
	return string(fields) + raw
}

// rule creates a rule of Acme, and has the owner of its address confirm it.
func (f *fixture) rule(local, target string) forwards.Rule {
	f.t.Helper()
	in := forwards.NewRule{Local: local, Address: target}
	if strings.Contains(target, "://") {
		in = forwards.NewRule{Local: local, URL: target}
	}
	r, err := f.rules.Create(f.t.Context(), f.Acme.TeamID, f.domain.ID, in)
	f.Must(err)
	if r.State() == forwards.Waiting {
		f.exec(`DELETE FROM forward_asks`) // as on another day
		f.run(0)
		f.confirm()
	}
	return f.get(r)
}

func (f *fixture) get(r forwards.Rule) forwards.Rule {
	f.t.Helper()
	got, err := f.rules.Get(f.t.Context(), r.TeamID, r.DomainID, r.ID)
	f.Must(err)
	return got
}

var link = regexp.MustCompile(testnode.PublicURL + `/forwarding/(confirm|refuse)/(\S+)`)

// tokens returns the tokens of the last confirmation email.
func (f *fixture) tokens() (confirm, refuse string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mails) == 0 {
		f.t.Fatal("no confirmation mail was sent")
	}
	found := link.FindAllStringSubmatch(f.mails[len(f.mails)-1].text, -1)
	if len(found) != 2 || found[0][1] != "confirm" || found[1][1] != "refuse" {
		f.t.Fatalf("the links are %v", found)
	}
	return found[0][2], found[1][2]
}

// confirm opens the link in the last confirmation email and presses the button.
func (f *fixture) confirm() {
	f.t.Helper()
	token, _ := f.tokens()
	q, err := f.rules.ReadConfirm(f.t.Context(), token)
	f.Must(err)
	f.Must(f.rules.Confirm(f.t.Context(), q))
}

func (f *fixture) mailCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mails)
}
