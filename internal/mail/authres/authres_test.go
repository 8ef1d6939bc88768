package authres_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	msgauth "github.com/emersion/go-msgauth/dkim"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/arc"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// keys generates the test keys once for this test binary.
var keys = sync.OnceValue(func() (k struct {
	rsa, ed *dkim.Key
	foreign *rsa.PrivateKey
}) {
	var err1, err2, err3 error
	k.rsa, err1 = dkim.GenerateRSA()
	k.ed, err2 = dkim.GenerateEd25519()
	k.foreign, err3 = rsa.GenerateKey(rand.Reader, 2048)
	if err := errors.Join(err1, err2, err3); err != nil {
		panic(err)
	}
	return k
})

func record(key *rsa.PrivateKey) string {
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		panic(err)
	}
	return "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)
}

func zone() resolve.Fake {
	return resolve.Fake{
		TXTRecords: map[string][]string{
			"example.com":                      {"unrelated", "v=spf1 ip4:192.0.2.1 include:_spf.example.com mx -all"},
			"_spf.example.com":                 {"v=spf1 ip6:2001:db8::/32 ~all"},
			"bounce.example.com":               {"v=spf1 ip4:192.0.2.0/24 ?all"},
			"strict.example":                   {"v=spf1 ip4:192.0.2.1 -all"},
			"sub.strict.example":               {"v=spf1 ip4:192.0.2.1 -all"},
			"soft.example":                     {"v=spf1 ~all"},
			"void.example":                     {"v=spf1"},
			"broken.example":                   {"v=spf1 ip4:nonsense -all"},
			"twice.example":                    {"v=spf1 -all", "v=spf1 +all"},
			"ptr.example":                      {"v=spf1 ptr -all"},
			"a.loop.example":                   {"v=spf1 include:b.loop.example -all"},
			"b.loop.example":                   {"v=spf1 include:a.loop.example -all"},
			"mx.friend.example":                {"v=spf1 ip4:192.0.2.1 -all"},
			"rsa._domainkey.example.com":       {keys().rsa.Record()},
			"ed._domainkey.example.com":        {keys().ed.Record()},
			"gone._domainkey.example.com":      {"v=DKIM1; p="},
			"huge._domainkey.example.com":      {"v=DKIM1; p=" + strings.Repeat("A", 60_000)},
			"foreign._domainkey.example.net":   {record(keys().foreign)},
			"ed._domainkey.mail.example.com":   {keys().ed.Record()},
			"ed._domainkey.sub.strict.example": {keys().ed.Record()},
			"_dmarc.example.com":               {"v=DMARC1; p=reject; sp=quarantine"},
			"_dmarc.strict.example":            {"v=DMARC1; p=quarantine; adkim=s; aspf=s"},
			"_dmarc.soft.example":              {"v=DMARC1; p=none"},
			"_dmarc.own.example.com":           {"v=DMARC1; p=none"},
			"_dmarc.version.example":           {"v=DMARC2; p=reject", "w=DMARC1; p=reject"},
			"_dmarc.beside.example":            {"unrelated", "v=DMARC1; p=reject"},
			"_dmarc.tags.example":              {"v=DMARC1; p=reject; p=none"},
			"_dmarc.invalid.example":           {"v=DMARC1; p=nonsense"},
			"_dmarc.reports.example":           {"v=DMARC1; p=nonsense; rua=MAILTO:a@b.example"},
			"_dmarc.invalidsub.example":        {"v=DMARC1; p=reject; sp=nonsense"},
			"_dmarc.validsub.example":          {"v=DMARC1; p=nonsense; sp=reject"},
			"_dmarc.twice.example":             {"v=DMARC1; p=none", "v=DMARC1; p=reject"},
			"_dmarc.trial.example":             {"v=DMARC1; p=reject; sp=quarantine; np=reject; t=y"},
			"_dmarc.suffix":                    {"v=DMARC1; p=reject; sp=quarantine; psd=y"},
			"shop.suffix":                      {"v=spf1 ip4:192.0.2.1 -all"},
			"store.suffix":                     {"v=spf1 ip4:192.0.2.1 -all"},
			"live.trial.example":               {"v=spf1 ip4:192.0.2.1 -all"},
			"_dmarc.halfway.example.com":       {"v=DMARC1; p=none"},
			"_dmarc.halfway.nodns.example":     {"v=DMARC1; p=none"},
			"halfway.nodns.example":            {"v=spf1 ip4:192.0.2.1 -all"},
			"a.halfway.nodns.example":          {"v=spf1 ip4:192.0.2.1 -all"},
		},
		MXRecords: map[string][]resolve.MX{"example.com": {{Host: "mx.example.com", Pref: 10}}},
		AddrRecords: map[string][]netip.Addr{
			"mx.example.com":   {netip.MustParseAddr("198.51.100.1")},
			"out.ptr.example":  {netip.MustParseAddr("192.0.2.1")},
			"fake.ptr.example": {netip.MustParseAddr("203.0.113.1")},
		},
		PTRRecords: map[netip.Addr][]string{
			netip.MustParseAddr("192.0.2.1"): {"out.ptr.example"},
			netip.MustParseAddr("192.0.2.2"): {"fake.ptr.example"},
		},
		Fail: []string{"down.example", "_dmarc.down.example", "lost._domainkey.example.com", "_dmarc.nodns.example"},
	}
}

func check(t *testing.T, o authres.Origin, raw string) authres.Results {
	t.Helper()
	return authres.New("mx.postrider.example", resolve.NetForm{Resolver: zone()}).
		Check(t.Context(), o, strings.NewReader(raw), int64(len(raw)))
}

func origin(addr, hello, from string) authres.Origin {
	return authres.Origin{Addr: netip.MustParseAddr(addr), Hello: hello, MailFrom: from}
}

// word returns the result and the domain of a verdict, without the detail text.
func word(v authres.Verdict) string { return strings.TrimSpace(v.Result + " " + v.Domain) }

const plain = "From: Alice <alice@example.com>\r\nTo: bob@example.net\r\nSubject: Hello\r\nDate: Wed, 04 Mar 2026 " +
	"05:06:07 +0000\r\n\r\nHello.\r\n"

// signed returns msg with DKIM signatures made by package dkim, which this package and the library must both accept.
func signed(t *testing.T, msg, domain, selector string, key *dkim.Key) string {
	t.Helper()
	fields, err := dkim.Sign([]byte(msg), time.Now(), dkim.Signer{Domain: domain, Selector: selector, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return string(fields) + msg
}

// foreign signs a message as other systems do: with simple canonicalization and few signed fields.
func foreign(t *testing.T, msg string) string {
	t.Helper()
	var out bytes.Buffer
	err := msgauth.Sign(&out, strings.NewReader(msg), &msgauth.SignOptions{
		Domain: "example.net", Selector: "foreign", Signer: keys().foreign, HeaderKeys: []string{"From", "Subject"}})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestSPF(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ addr, hello, from, want string }{
		{"192.0.2.1", "out.example", "a@example.com", "pass example.com"},
		{"::ffff:192.0.2.1", "out.example", "a@Example.COM", "pass example.com"},
		{"2001:db8::5", "out.example", "a@example.com", "pass example.com"},
		{"198.51.100.1", "out.example", "a@example.com", "pass example.com"},
		{"203.0.113.1", "out.example", "a@example.com", "fail example.com"},
		{"203.0.113.1", "out.example", "a@soft.example", "softfail soft.example"},
		{"203.0.113.1", "out.example", "a@void.example", "neutral void.example"},
		{"203.0.113.1", "out.example", "a@bounce.example.com", "neutral bounce.example.com"},
		{"203.0.113.1", "out.example", "a@unknown.example", "none unknown.example"},
		{"203.0.113.1", "out.example", "a@broken.example", "permerror broken.example"},
		{"203.0.113.1", "out.example", "a@twice.example", "permerror twice.example"},
		{"203.0.113.1", "out.example", "a@a.loop.example", "permerror a.loop.example"},
		{"203.0.113.1", "out.example", "a@down.example", "temperror down.example"},
		{"192.0.2.1", "out.example", "a@ptr.example", "pass ptr.example"},
		{"192.0.2.2", "out.example", "a@ptr.example", "fail ptr.example"},
		{"192.0.2.1", "mx.friend.example", "", "pass mx.friend.example"},
		{"203.0.113.1", "mx.friend.example.", "", "fail mx.friend.example"},
		{"203.0.113.1", "[203.0.113.1]", "", "none"},
		{"203.0.113.1", "localhost", "", "none"},
		{"203.0.113.1", "out.example", "nobody", "none"},
		{"203.0.113.1", "out.example", "a@exa mple.com", "none"},
		{"192.0.2.1", "out.example", `"x@evil"@example.com`, "pass example.com"},
		{"192.0.2.1", "out.example", "@example.com", "pass example.com"},
		// Names with an underscore are not host names (RFC 1123 section 2.1), but can be names of mail domains.
		{"203.0.113.1", "out.example", "a@_azAZ09-.example", "none _azaz09-.example"},
		{"203.0.113.1", "out.example", "a@_a/.example", "none"},
		{"203.0.113.1", "out.example", "a@_a:.example", "none"},
		{"203.0.113.1", "out.example", "a@_a`.example", "none"},
		{"203.0.113.1", "out.example", "a@_a{.example", "none"},
		{"203.0.113.1", "out.example", "a@_a[.example", "none"},
		// RFC 1035 section 2.3.4 limits labels to 63 bytes, and therefore names in text form to 253 bytes.
		{"203.0.113.1", "out.example", "a@" + strings.Repeat("l", 63) + ".example", "none " + strings.Repeat("l", 63) +
			".example"},
		{"203.0.113.1", "out.example", "a@" + strings.Repeat("l", 64) + ".example", "none"},
		{"203.0.113.1", "out.example", "a@" + strings.Repeat("l.", 122) + "example.c", "none " + strings.Repeat("l.", 122) +
			"example.c"},
		{"203.0.113.1", "out.example", "a@" + strings.Repeat("l.", 122) + "example.co", "none"},
		{"203.0.113.1", "out.example", "a@x..example", "none"},
		{"203.0.113.1", "out.example", "a@.example", "none"},
		{"192.0.2.1", "out.example", "a@münchen.example", "none xn--mnchen-3ya.example"},
	} {
		if got := check(t, origin(test.addr, test.hello, test.from), plain).SPF; word(got) != test.want {
			t.Errorf("%s, HELO %s, MAIL FROM <%s>: %q (%s), want %q", test.addr, test.hello, test.from, word(got), got.Detail,
				test.want)
		}
	}
	if got := check(t, authres.Origin{MailFrom: "a@example.com"}, plain).SPF; word(got) != "none example.com" {
		t.Errorf("without an address: %+v", got)
	}
}

func TestDKIM(t *testing.T) {
	t.Parallel()
	good := signed(t, plain, "example.com", "rsa", keys().rsa)
	for name, test := range map[string]struct{ raw, want, detail string }{
		"unsigned": {plain, "none", "not signed"},
		"rsa":      {good, "pass example.com", ""},
		"ed25519":  {signed(t, plain, "example.com", "ed", keys().ed), "pass example.com", ""},
		"foreign":  {foreign(t, plain), "pass example.net", ""},
		"bare LF":  {strings.ReplaceAll(good, "\r\n", "\n"), "pass example.com", ""},
		"several": {signed(t, signed(t, foreign(t, plain), "example.com", "ed", keys().ed), "example.com", "rsa",
			keys().rsa), "pass example.com, pass example.com, pass example.net", ""},
		"changed body":    {strings.Replace(good, "Hello.", "Buy now.", 1), "fail example.com", "body hash"},
		"changed subject": {strings.Replace(good, "Subject: Hello", "Subject: Buy", 1), "fail example.com", "signature"},
		"second From":     {"From: eve@evil.example\r\n" + foreign(t, plain), "pass example.net", "2 From fields"},
		"no key":          {strings.Replace(good, "s=rsa", "s=nokey", 1), "permerror example.com", "no key"},
		"revoked":         {strings.Replace(good, "s=rsa", "s=gone", 1), "permerror example.com", "revoked"},
		"huge key":        {strings.Replace(good, "s=rsa", "s=huge", 1), "permerror example.com", "longer than"},
		"no DNS":          {strings.Replace(good, "s=rsa", "s=lost", 1), "temperror example.com", ""},
		"length tag":      {strings.Replace(good, "v=1;", "v=1; l=5;", 1), "fail example.com", "body length"},
		"nonsense":        {"DKIM-Signature: nonsense\r\n" + plain, "permerror", "malformed"},
		"empty":           {"", "none", ""},
		"only a header":   {"DKIM-Signature: v=1; d=example.com", "permerror example.com", "missing"},
	} {
		r := check(t, origin("203.0.113.1", "out.example", ""), test.raw)
		words := make([]string, len(r.DKIM))
		details := ""
		for i, v := range r.DKIM {
			words[i] = word(v)
			details += v.Detail + "\n"
		}
		if got := strings.Join(words, ", "); got != test.want || !strings.Contains(details, test.detail) {
			t.Errorf("%s: %q (%s), want %q with %q", name, got, details, test.want, test.detail)
		}
	}
}

// Check ignores data that follows the message in the file.
func TestMessageEndsAtItsSize(t *testing.T) {
	t.Parallel()
	raw := signed(t, plain, "example.com", "rsa", keys().rsa)
	r := authres.New("mx.example", resolve.NetForm{Resolver: zone()}).Check(t.Context(), origin("192.0.2.1", "x.example",
		""),
		strings.NewReader(raw+"More.\r\n"), int64(len(raw)))
	if diff := gocmp.Diff([]authres.Verdict{{Result: "pass", Domain: "example.com"}}, r.DKIM); diff != "" {
		t.Error(diff)
	}
}

func TestKeyRecordsAreBounded(t *testing.T) {
	t.Parallel()
	raw := signed(t, plain, "example.com", "rsa", keys().rsa)
	key := keys().rsa.Record() + "; n="
	for size, want := range map[int]string{4096: "pass", 4097: "permerror"} {
		dns := zone()
		dns.TXTRecords["rsa._domainkey.example.com"] = []string{key + strings.Repeat("n", size-len(key))}
		r := authres.New("mx.example", resolve.NetForm{Resolver: dns}).Check(t.Context(), origin("192.0.2.1", "x.example",
			""),
			strings.NewReader(raw), int64(len(raw)))
		if r.DKIM[0].Result != want {
			t.Errorf("%d bytes: %+v, want %s", size, r.DKIM, want)
		}
	}
}

// Check evaluates a header at the limit and rejects a larger one.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	signature := "DKIM-Signature: v=1; d=example.com;"
	folds := strings.Repeat("\r\n "+strings.Repeat("x", 999), 4)
	end := strings.Index(plain, "\r\n\r\n") + 2
	for name, test := range map[string]struct {
		raw    func(more int) string // returns a message with this many additional header bytes, fields or lines
		limit  int
		detail string
	}{
		"octets": {func(n int) string { return "X: " + strings.Repeat("y", n) + "\r\n" + plain },
			256<<10 - len("X: \r\n") - end, "256 KiB"},
		"fields": {func(n int) string { return strings.Repeat("X: y\r\n", n) + plain }, 1996, "2000 fields"},
		"lines":  {func(n int) string { return "X: y" + strings.Repeat("\r\n y", n) + "\r\n" + plain }, 4995, "5000 lines"},
		"octets of a folded signature": {func(n int) string {
			return signature + folds + "\r\n\t" + strings.Repeat("x", n) + "\r\n" + plain
		}, 4096 - len(signature) - 4000 - len("\t"), "4 KiB"},
	} {
		if r := check(t, origin("192.0.2.1", "x.example", ""), test.raw(test.limit)); r.Policy != "reject" ||
			strings.Contains(r.DKIM[0].Detail, test.detail) {
			t.Errorf("%s: %+v", name, r)
		}
		if r := check(t, origin("192.0.2.1", "x.example", ""), test.raw(test.limit+1)); r.Policy != "" ||
			r.DKIM[0].Result != "permerror" ||
			!strings.Contains(r.DKIM[0].Detail, test.detail) {
			t.Errorf("%s, and one more: %+v", name, r)
		}
	}
}

// broken is a file in which every read after a given offset fails.
type broken struct {
	io.ReaderAt
	from int64
}

func (b broken) ReadAt(p []byte, off int64) (int, error) {
	if n := b.from - off; n < int64(len(p)) {
		got, _ := b.ReaderAt.ReadAt(p[:max(n, 0)], off)
		return got, errors.New("read failed")
	}
	return b.ReaderAt.ReadAt(p, off)
}

// If part of a message cannot be read, Check treats the message neither as unsigned nor as truncated at that point.
func TestHeaderThatCannotBeRead(t *testing.T) {
	t.Parallel()
	raw := "X: " + strings.Repeat("y", 10_000) + "\r\n" + plain
	for _, from := range []int64{0, 100, 6_000, 10_010} {
		r := authres.New("mx.example", resolve.NetForm{Resolver: zone()}).Check(t.Context(), origin("192.0.2.1", "x.example",
			""),
			broken{strings.NewReader(raw), from}, int64(len(raw)))
		if r.DKIM[0].Detail != "the message cannot be read" || r.DMARC.Detail != r.DKIM[0].Detail {
			t.Errorf("from byte %d on: %+v", from, r)
		}
	}
}

func TestWeakKey(t *testing.T) {
	t.Parallel()
	// Check rejects the key because it is too short, so the modulus in this test need not be a product of two primes.
	der := x509.MarshalPKCS1PublicKey(&rsa.PublicKey{N: new(big.Int).Rsh(keys().foreign.N, 1100), E: 65537})
	dns := zone()
	dns.TXTRecords["rsa._domainkey.example.com"] = []string{"v=DKIM1; p=" + base64.StdEncoding.EncodeToString(der)}
	raw := signed(t, plain, "example.com", "rsa", keys().rsa)
	r := authres.New("mx.example", resolve.NetForm{Resolver: dns}).Check(t.Context(), origin("192.0.2.1", "x.example", ""),
		strings.NewReader(raw), int64(len(raw)))
	if r.DKIM[0].Result != "permerror" || !strings.Contains(r.DKIM[0].Detail, "too short") {
		t.Errorf("%+v", r.DKIM)
	}
}

func TestHeaderField(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		o    authres.Origin
		raw  string
		want string
	}{
		"all pass": {origin("192.0.2.1", "x.example", "a@example.com"), signed(t, foreign(t, plain), "example.com", "rsa",
			keys().rsa),
			"mx.postrider.example; spf=pass smtp.mailfrom=example.com; dkim=pass header.d=example.com; dkim=pass " +
				"header.d=example.net; " +
				"dmarc=pass header.from=example.com policy.dmarc=reject"},
		"null path": {origin("192.0.2.1", "mx.friend.example", ""), plain,
			"mx.postrider.example; spf=pass smtp.helo=mx.friend.example; dkim=none; dmarc=fail header.from=example.com " +
				"policy.dmarc=reject"},
		"injection": {origin("192.0.2.1", "x; dkim=pass\r\nX: y", `a@x"; dkim=pass header.d=example.com`),
			"From: <a@b\x00\"; dkim=pass.example>\r\n\r\n",
			"mx.postrider.example; spf=none; dkim=none; dmarc=permerror"},
	} {
		if diff := gocmp.Diff(test.want, check(t, test.o, test.raw).Header); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// sealedBy returns a message with a further ARC set, whose results are those of a domain.
func sealedBy(t *testing.T, dns *resolve.Fake, domain, raw, results string) string {
	t.Helper()
	c := arc.Verify(t.Context(), resolve.NetForm{Resolver: *dns}.LookupTXT, strings.NewReader(raw))
	dns.TXTRecords["arc._domainkey."+domain] = []string{keys().rsa.Record()}
	out, err := arc.Seal([]byte(raw), c, domain+"; "+results, dkim.Signer{Domain: domain, Selector: "arc",
		Key: keys().rsa}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return string(out) + raw
}

// A chain is shown, and changes the policy only if the operator trusts all sealers.
func TestARC(t *testing.T) {
	t.Parallel()
	dns := zone()
	const good = "spf=fail; dmarc=pass header.from=example.com"
	one := sealedBy(t, &dns, "list.example", plain, good)
	two := sealedBy(t, &dns, "fwd.example", one, "dmarc=fail header.from=example.com")
	other := sealedBy(t, &dns, "list.example", plain, "dmarc=pass header.from=other.example")
	for name, test := range map[string]struct {
		raw, arc, policy string
		trusted          []string
	}{
		"no chain":            {plain, "none", "reject", []string{"list.example"}},
		"one set":             {one, "pass list.example", "reject", nil},
		"trusted":             {one, "pass list.example", "none", []string{"list.example"}},
		"trusts another":      {one, "pass list.example", "reject", []string{"fwd.example"}},
		"trusts one of two":   {two, "pass fwd.example", "reject", []string{"list.example"}},
		"trusts both":         {two, "pass fwd.example", "none", []string{"fwd.example", "list.example"}},
		"of another domain":   {other, "pass list.example", "reject", []string{"list.example"}},
		"changed":             {one + "more\r\n", "fail list.example", "reject", []string{"list.example"}},
		"only two fields":     {"ARC-Seal: i=1; cv=none\r\nARC-Message-Signature: i=1\r\n" + plain, "fail", "reject", nil},
		"results and no seal": {"ARC-Authentication-Results: i=1; x; dmarc=pass\r\n" + plain, "fail", "reject", nil},
	} {
		e := authres.New("mx.postrider.example", resolve.NetForm{Resolver: dns})
		e.TrustSealers(test.trusted...)
		r := e.Check(t.Context(), origin("192.0.2.1", "x.example", ""), strings.NewReader(test.raw), int64(len(test.raw)))
		if word(r.ARC) != test.arc || r.Policy != test.policy || r.DMARC.Result != "fail" {
			t.Errorf("%s: %+v, dmarc %+v, policy %s", name, r.ARC, r.DMARC, r.Policy)
		}
		if state, _, _ := strings.Cut(test.arc, " "); strings.Contains(r.Header, "; arc="+state) != (state != "none") {
			t.Errorf("%s: %s", name, r.Header)
		}
	}
}

func TestHostile(t *testing.T) {
	t.Parallel()
	hash := sha256.Sum256([]byte("Hello.\r\n"))
	bodyHash := base64.StdEncoding.EncodeToString(hash[:]) // correct, so the verifier also checks the fields
	one := strings.TrimSuffix(signed(t, plain, "example.com", "ed", keys().ed), plain)
	for name, test := range map[string]struct {
		raw      string
		verdicts int
		last     string // result of the last DKIM verdict
	}{
		"1,000 signatures":      {strings.Repeat("DKIM-Signature: v=1; d=example.com\r\n", 999) + one + plain, 9, "neutral"},
		"10 MB header":          {strings.Repeat("X: "+strings.Repeat("y", 990)+"\r\n", 10_000) + plain, 1, "permerror"},
		"10 MB line":            {"X: " + strings.Repeat("y", 10<<20) + "\r\n" + plain, 1, "permerror"},
		"one field, many folds": {one + "X:" + strings.Repeat("\r\n y", 50_000) + "\r\n" + plain, 1, "permerror"},
		"as many as may be":     {one + "X:" + strings.Repeat("\r\n y", 4_900) + "\r\n" + plain, 1, "pass"},
		"many fields":           {strings.Repeat("X:y\r\n", 2_100) + plain, 1, "permerror"},
		"long signature": {"DKIM-Signature: v=1; d=example.com; h=from" + strings.Repeat(":a", 3_000) + "\r\n" + plain,
			1, "permerror"},
		"work of verifiers": {strings.Repeat("DKIM-Signature: v=1; a=ed25519-sha256; s=ed; d=example.com; bh="+bodyHash+
			"; b=; h=from"+strings.Repeat(":a", 1_900)+"\r\n", 8) +
			strings.Repeat("b:y\r\n", 1_900) + plain, 8, "fail"},
		"NUL and no end": {"DKIM-Signature: \x00\r\x00\nFrom:\x00", 1, "permerror"},
	} {
		start := time.Now()
		r := check(t, origin("192.0.2.1", "x.example", "a@a.loop.example"), test.raw)
		if len(r.DKIM) != test.verdicts || r.DKIM[len(r.DKIM)-1].Result != test.last {
			t.Errorf("%s: %+v", name, r.DKIM)
		}
		if strings.ContainsAny(r.Header, "\r\n\x00") {
			t.Errorf("%s: header %q", name, r.Header)
		}
		t.Logf("%s: %v", name, time.Since(start))
	}
}

// silent is a DNS resolver that never answers.
type silent struct{ resolve.NetForm }

func (silent) LookupTXT(ctx context.Context, _ string) ([]string, error) {
	<-ctx.Done()
	return resolve.NetForm{Resolver: resolve.Fake{}}.LookupTXT(ctx, "x.example")
}

func TestTimeIsBounded(t *testing.T) {
	t.Parallel()
	raw := signed(t, plain, "example.com", "rsa", keys().rsa)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := authres.New("mx.example", silent{}).Check(t.Context(), origin("192.0.2.1", "x.example", "a@example.com"),
			strings.NewReader(raw), int64(len(raw)))
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("took %v", took)
		}
		if r.SPF.Result != "temperror" || r.DKIM[0].Result != "temperror" || r.DMARC.Result != "temperror" {
			t.Errorf("%+v", r)
		}
	})
}

// late is a DNS resolver whose answers arrive after the time limit.
type late struct{ resolve.NetForm }

func (l late) LookupTXT(ctx context.Context, name string) ([]string, error) {
	<-time.After(11 * time.Second)
	return l.NetForm.LookupTXT(context.WithoutCancel(ctx), name)
}

// After the time limit, Check still trusts an SPF "pass" but no other SPF result. Missing look-ups may cause a wrong
// "fail", but never a wrong "pass".
func TestSPFThatComesLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for domain, want := range map[string]string{"soft.example": "temperror", "strict.example": "pass"} {
			r := authres.New("mx.example", late{resolve.NetForm{Resolver: zone()}}).Check(t.Context(),
				origin("192.0.2.1", "x.example", "a@"+domain), strings.NewReader(plain), int64(len(plain)))
			if r.SPF.Result != want {
				t.Errorf("%s: %+v, want %s", domain, r.SPF, want)
			}
		}
	})
}

// slowBody is a message whose body takes longer to read than the time limit.
type slowBody struct {
	io.ReaderAt
	after int64
}

func (s slowBody) ReadAt(p []byte, off int64) (int, error) {
	if off > s.after {
		<-time.After(11 * time.Second)
	}
	return s.ReaderAt.ReadAt(p, off)
}

func TestBodyThatCannotBeReadInTime(t *testing.T) {
	t.Parallel()
	msg := plain + strings.Repeat("another line\r\n", 100_000)
	raw := signed(t, msg, "example.com", "ed", keys().ed)
	synctest.Test(t, func(t *testing.T) {
		dns := resolve.NetForm{Resolver: zone()}
		r := authres.New("mx.example", dns).Check(t.Context(), origin("203.0.113.1", "x.example", "a@soft.example"),
			slowBody{strings.NewReader(raw), 8_000}, int64(len(raw)))
		if r.DKIM[0].Result != "temperror" || r.DMARC.Result != "temperror" {
			t.Errorf("%+v", r)
		}
	})
}

func FuzzCheck(f *testing.F) {
	f.Add(plain, "a@example.com", "x.example", "v=spf1 -all")
	f.Add("DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed; d=e.com; s=s; h=from; bh=; b=\r\n"+plain, "", "[::1]",
		"v=DKIM1; k=ed25519; p=AAAA")
	f.Add("From: <@>\n\n", "@", "", "v=DMARC1; p=reject; sp=x; rua=mailto:a@b")
	words := "pass fail softfail neutral none temperror permerror"
	f.Fuzz(func(t *testing.T, raw, from, hello, txt string) {
		dns := anything{txt: txt}
		r := authres.New("mx.example", resolve.NetForm{Resolver: dns}).Check(t.Context(), origin("192.0.2.1", hello, from),
			strings.NewReader(raw), int64(len(raw)))
		for _, v := range append(r.DKIM, r.SPF, r.DMARC, r.ARC) {
			if !strings.Contains(words, cmp.Or(v.Result, "?")) {
				t.Errorf("%+v", v)
			}
		}
		if len(r.DKIM) == 0 || strings.ContainsFunc(r.Header, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Errorf("%q of %+v", r.Header, r)
		}
		if _, err := fmt.Sscanf(r.Header, "mx.example; spf="); err != nil {
			t.Errorf("%q: %v", r.Header, err)
		}
	})
}

// anything is a DNS resolver that answers every TXT query with the same record.
type anything struct {
	resolve.Fake
	txt string
}

func (a anything) TXT(context.Context, string) ([]string, error) { return []string{a.txt}, nil }
