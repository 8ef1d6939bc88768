package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/platform/certs/certstest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

const mailHost = "mx.postrider.test"

// tlsaRecords is what the DNS says about the TLSA records of mail hosts.
type tlsaRecords struct {
	mu  sync.Mutex
	p   Published
	err error
}

func (d *tlsaRecords) set(p Published, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.p, d.err = p, err
}

func (d *tlsaRecords) look(context.Context, string) (Published, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.p, d.err
}

// keyOf returns what the list says about the key of the mail host.
func keyOf(t *testing.T, m *member) MailKey {
	t.Helper()
	all, err := m.MailKeys(t.Context())
	if err != nil || len(all) != 1 || all[0].Host != mailHost {
		t.Fatalf("the keys are %+v, %v", all, err)
	}
	return all[0]
}

// served returns the record of the key that an SMTP client sees.
func served(t *testing.T, m *member) string {
	t.Helper()
	c, err := m.forMail(&tls.ClientHelloInfo{ServerName: mailHost})
	if err != nil {
		t.Fatal(err)
	}
	r, err := dane.For(c.Leaf.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return r.String()
}

// The certificate of a mail host keeps its key when it is renewed; that of a web host does not. Two nodes show the same
// next key. A change of the key waits until the record of the next key was published for two lifetimes, and both nodes
// then use it.
func TestKeysOfMailHosts(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a, look := certstest.New(t, 0), &tlsaRecords{}
		o := Options{Web: []string{host}, Mail: []string{mailHost}, ACME: by(a, "http-01"), Published: look.look}
		m := start(t, d, o)
		a.HTTP.To(m.http)
		a.TLS.To(m.https)
		m.run()
		covered(t, m.https, host, a)
		covered(t, m.https, mailHost, a)
		ctx := t.Context()
		web, err := m.mailChain(ctx, host)
		if err != nil {
			t.Fatal(err)
		}
		m.manageKeys(ctx)
		first := keyOf(t, m)
		if first.Source != FromACME || first.InUse.String() != served(t, m) || first.Next.String() == first.InUse.String() ||
			!strings.HasPrefix(first.Next.String(), "3 1 1 ") {
			t.Errorf("the key is %+v", first)
		}
		for _, name := range []string{host, mailHost} {
			if err := m.configOf(name).RenewCertSync(ctx, name, true); err != nil {
				t.Fatal(err)
			}
		}
		renewed, err := m.mailChain(ctx, host)
		if err != nil || renewed[0].Equal(web[0]) || string(renewed[0].RawSubjectPublicKeyInfo) ==
			string(web[0].RawSubjectPublicKeyInfo) {
			t.Errorf("a web host keeps its key: %v", err)
		}
		again := keyOf(t, m)
		if again.Chain[0].Equal(first.Chain[0]) || again.InUse.String() != first.InUse.String() {
			t.Errorf("the renewed certificate has the key %s instead of %s", again.InUse, first.InUse)
		}

		second := start(t, d, o) // another node
		if other := keyOf(t, second); other.Next.String() != first.Next.String() {
			t.Errorf("another node has the next key %s", other.Next)
		}
		second.run()
		covered(t, second.https, mailHost, a)

		waitForRecord(t, m, look, first)
		m.manageKeys(ctx)
		k := keyOf(t, m)
		if k.InUse.String() != first.Next.String() || !k.ChangeAsked.IsZero() || k.Next.String() == first.Next.String() {
			t.Errorf("after the change: %+v", k)
		}
		for _, node := range []*member{m, second} {
			eventually(t, "the next key at a node", func() bool {
				node.wake()
				return served(t, node) == first.Next.String()
			})
		}
	})
}

// waitForRecord starts a change of a key, and checks that it waits until the record of the next key was published for two
// of its lifetimes. In the end, it has waited for long enough.
func waitForRecord(t *testing.T, m *member, look *tlsaRecords, first MailKey) {
	t.Helper()
	ctx := t.Context()
	if err := m.ChangeKey(ctx, mailHost, time.Hour); err != nil {
		t.Fatal(err)
	}
	step := func() MailKey {
		t.Helper()
		m.manageKeys(ctx)
		return keyOf(t, m)
	}
	look.set(Published{}, errors.New("no answer"))
	if k := step(); k.ChangeAsked.IsZero() || !k.UseAfter.IsZero() || k.InUse.String() != first.InUse.String() {
		t.Errorf("while the DNS is silent: %+v", k)
	}
	look.set(Published{Records: []dane.Record{first.InUse}}, nil)
	if k := step(); !k.UseAfter.IsZero() {
		t.Errorf("without the next record: %+v", k)
	}
	both := Published{Records: []dane.Record{first.InUse, first.Next}}
	look.set(both, nil)
	k := step()
	if wait := time.Until(k.UseAfter); wait < time.Hour || wait > 3*time.Hour || k.InUse.String() != first.InUse.String() {
		t.Errorf("with the next record: %+v", k)
	}
	look.set(Published{Records: []dane.Record{first.InUse}}, nil)
	if k = step(); !k.UseAfter.IsZero() {
		t.Errorf("after the next record disappeared: %+v", k)
	}
	both.TTL = 3 * time.Hour
	look.set(both, nil)
	if k = step(); k.TTL != 3*time.Hour || time.Until(k.UseAfter) < 5*time.Hour {
		t.Errorf("with a longer lifetime in the DNS: %+v", k)
	}
	look.set(Published{}, nil)
	if k = step(); k.InUse.String() != first.InUse.String() || time.Until(k.UseAfter) < 2*time.Hour {
		t.Errorf("after all records disappeared: %+v", k)
	}
	both.TTL = time.Minute // the remaining lifetime in a cache
	look.set(both, nil)
	if k = step(); k.InUse.String() != first.InUse.String() || time.Until(k.UseAfter) < 5*time.Hour {
		t.Errorf("after the records came back: %+v", k)
	}
	later(t, m, 6*time.Hour)
}

// later moves what was seen of a next key into the past, as if that time had passed.
func later(t *testing.T, m *member, passed time.Duration) {
	t.Helper()
	err := m.changeNext(t.Context(), mailHost, func(k *nextKey) error {
		for _, at := range []*time.Time{&k.SeenSince, &k.AbsentSince} {
			if !at.IsZero() {
				*at = at.Add(-passed)
			}
		}
		return m.storeNext(t.Context(), mailHost, k)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// If senders ignore the records of a host, a change of its key waits for one lifetime: the zone may have lost its
// signatures a moment ago, and senders still obey the records that they have cached. A change that was cancelled is not
// made.
func TestChangeWithoutRecords(t *testing.T) {
	d := dbtest.SQLite(t)
	a, look := certstest.New(t, 0), &tlsaRecords{p: Published{Records: []dane.Record{{Usage: 3}}}}
	m := start(t, d, Options{Mail: []string{mailHost}, ACME: by(a, "http-01"), Published: look.look})
	a.HTTP.To(m.http)
	m.run()
	eventually(t, "a certificate", func() bool { return len(m.ownCache.AllMatchingCertificates(mailHost)) > 0 })
	ctx := t.Context()
	m.manageKeys(ctx)
	first := keyOf(t, m)
	if err := m.CancelKeyChange(ctx, mailHost); err == nil {
		t.Error("a change that was not started is cancelled")
	}
	if err := m.ChangeKey(ctx, mailHost, 0); err != nil {
		t.Fatal(err)
	}
	if err := m.CancelKeyChange(ctx, mailHost); err != nil {
		t.Fatal(err)
	}
	look.set(Published{Useless: true}, nil)
	m.manageKeys(ctx)
	if k := keyOf(t, m); k.InUse.String() != first.InUse.String() || k.Next.String() != first.Next.String() {
		t.Errorf("a cancelled change was made: %+v", k)
	}
	if err := m.ChangeKey(ctx, mailHost, 0); err != nil {
		t.Fatal(err)
	}
	m.manageKeys(ctx)
	if k := keyOf(t, m); k.InUse.String() != first.InUse.String() || time.Until(k.UseAfter) < DefaultTTL/2 {
		t.Errorf("without signatures, the change does not wait: %+v", k)
	}
	later(t, m, DefaultTTL)
	m.manageKeys(ctx)
	if k := keyOf(t, m); k.InUse.String() != first.Next.String() {
		t.Errorf("the key is %+v", k)
	}
	for _, x := range []struct {
		host string
		ttl  time.Duration
	}{{"elsewhere.test", 0}, {mailHost, -time.Second}, {mailHost, 8 * 24 * time.Hour}} {
		if err := m.ChangeKey(ctx, x.host, x.ttl); err == nil {
			t.Errorf("the key of %s is changed with the lifetime %s", x.host, x.ttl)
		}
	}
}

// The list shows the key in the operator's files, and Postrider does not change it.
func TestKeyInFiles(t *testing.T) {
	d := dbtest.SQLite(t)
	certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	writeCertificate(t, certFile, keyFile, mailHost, time.Now())
	m := start(t, d, Options{Mail: []string{mailHost}, CertFile: certFile, KeyFile: keyFile})
	k := keyOf(t, m)
	if k.Source != FromFiles || k.InUse.String() != served(t, m) || len(k.Next.Data) > 0 {
		t.Errorf("the key is %+v", k)
	}
	if err := m.ChangeKey(t.Context(), mailHost, 0); err == nil || !strings.Contains(err.Error(), "tls_key_file") {
		t.Errorf("the change of a key in a file is refused by %v", err)
	}
}
