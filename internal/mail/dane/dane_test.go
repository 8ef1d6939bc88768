package dane_test

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/dane"
)

func TestParse(t *testing.T) {
	t.Parallel()
	c := issue(t, "mx.example.com", nil, server("mx.example.com"))
	digest := func(n int) []byte { return make([]byte, n) }
	for _, test := range []struct {
		name   string
		record dane.Record
		says   string // a part of the reason why it is unusable, or "" if it is usable
	}{
		{"usage 0", dane.Record{Usage: 0, Selector: 1, Matching: 1, Data: digest(32)}, "usage 0"},
		{"usage 1", dane.Record{Usage: 1, Selector: 1, Matching: 1, Data: digest(32)}, "usage 1"},
		{"usage 4", dane.Record{Usage: 4, Selector: 1, Matching: 1, Data: digest(32)}, "usage 4"},
		{"private usage", dane.Record{Usage: 255, Selector: 1, Matching: 1, Data: digest(32)}, "usage 255"},
		{"selector 2", dane.Record{Usage: 3, Selector: 2, Matching: 1, Data: digest(32)}, "selector 2"},
		{"private selector", dane.Record{Usage: 3, Selector: 255, Matching: 0, Data: c.Raw}, "selector 255"},
		{"matching type 3", dane.Record{Usage: 3, Selector: 1, Matching: 3, Data: digest(48)}, "matching type 3"},
		{"private matching type", dane.Record{Usage: 3, Selector: 1, Matching: 255, Data: digest(32)}, "matching type 255"},
		{"SHA-256 too short", dane.Record{Usage: 3, Selector: 1, Matching: 1, Data: digest(31)}, "31 bytes instead of 32"},
		{"SHA-256 too long", dane.Record{Usage: 3, Selector: 1, Matching: 1, Data: digest(64)}, "64 bytes instead of 32"},
		{"SHA-512 too short", dane.Record{Usage: 2, Selector: 0, Matching: 2, Data: digest(32)}, "32 bytes instead of 64"},
		{"no data", dane.Record{Usage: 3, Selector: 1, Matching: 1}, "0 bytes"},
		{"no certificate", dane.Record{Usage: 3, Selector: 0, Matching: 0, Data: c.RawSubjectPublicKeyInfo},
			"no certificate"},
		{"no key", dane.Record{Usage: 2, Selector: 1, Matching: 0, Data: c.Raw}, "no public key"},
		{"an empty key", dane.Record{Usage: 3, Selector: 1, Matching: 0}, "no public key"},
		{"EE", dane.Record{Usage: 3, Selector: 1, Matching: 1, Data: digest(32)}, ""},
		{"TA", dane.Record{Usage: 2, Selector: 0, Matching: 2, Data: digest(64)}, ""},
		{"a certificate", record(c, 2, 0, 0), ""},
		{"a key", record(c, 3, 1, 0), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := dane.Parse([]dane.Record{test.record})
			why := strings.Join(s.Unusable(), "\n")
			if s.Usable() != (test.says == "") || !strings.Contains(why, test.says) || (why == "") != (test.says == "") {
				t.Errorf("usable: %v, %q", s.Usable(), why)
			}
			if (s.Digest() != "") != s.Usable() {
				t.Errorf("digest %q", s.Digest())
			}
		})
	}
	many := dane.Parse(make([]dane.Record, 200))
	if n := len(many.Unusable()); n != 8 || many.Usable() {
		t.Errorf("%d reasons for 200 unusable records", n)
	}
}

func TestRecordsThatCount(t *testing.T) {
	t.Parallel()
	a, b := issue(t, "a", nil, nil), issue(t, "b", nil, nil)
	s := dane.Parse([]dane.Record{record(a, 2, 0, 1), record(a, 3, 1, 1), record(a, 3, 1, 2), record(b, 3, 1, 1),
		record(a, 3, 1, 0), record(a, 3, 0, 1), record(a, 3, 1, 2), record(a, 0, 0, 1)})
	var got []string
	for _, r := range s.Records() {
		got = append(got, r.String())
	}
	want := []string{record(a, 3, 1, 2).String(), record(a, 3, 1, 0).String(), record(a, 3, 0, 1).String(),
		record(a, 2, 0, 1).String()}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Two sets have the same digest if Verify gives the same results for both.
func TestDigest(t *testing.T) {
	t.Parallel()
	a, b := issue(t, "a", nil, authority), issue(t, "b", nil, authority)
	ee := func(all ...dane.Record) *dane.Set { return dane.Parse(all) }
	one := ee(record(a, 3, 1, 1), record(b, 3, 1, 1))
	for name, other := range map[string]*dane.Set{
		"another order": ee(record(b, 3, 1, 1), record(a, 3, 1, 1)),
		"twice":         ee(record(b, 3, 1, 1), record(a, 3, 1, 1), record(b, 3, 1, 1)),
		"an unusable one beside": ee(record(b, 3, 1, 1), record(a, 3, 1, 1),
			dane.Record{Usage: 1, Selector: 1, Matching: 1, Data: make([]byte, 32)}),
	} {
		if one.Digest("x") != other.Digest("x") {
			t.Errorf("%s: another digest", name)
		}
	}
	for name, other := range map[string]*dane.Set{
		"one less":         ee(record(a, 3, 1, 1)),
		"one more":         ee(record(b, 3, 1, 1), record(a, 3, 1, 1), record(a, 3, 0, 1)),
		"another digest":   ee(record(a, 3, 1, 1), record(issue(t, "c", nil, nil), 3, 1, 1)),
		"another usage":    ee(record(a, 3, 1, 1), record(b, 2, 1, 1)),
		"another selector": ee(record(a, 3, 1, 1), dane.Record{Usage: 3, Matching: 1, Data: record(b, 3, 1, 1).Data}),
	} {
		if one.Digest("x") == other.Digest("x") {
			t.Errorf("%s: the same digest", name)
		}
	}
	if one.Digest("x") != one.Digest("y") || one.Digest() != one.Digest("y") {
		t.Error("names change the digest of records that ignore names")
	}
	ta := ee(record(a, 2, 1, 1))
	if ta.Digest("mx.example", "a.example") != ta.Digest("A.example", "mx.example", "a.example") {
		t.Error("the order or the case of names changes the digest")
	}
	for _, names := range [][]string{{"mx.example"}, {"mx.example", "b.example"}, {"mx.examplea.example"}, nil} {
		if ta.Digest("mx.example", "a.example") == ta.Digest(names...) {
			t.Errorf("%q: the same digest", names)
		}
	}
	if n := len(ta.Digest()); n != 22 {
		t.Errorf("%d characters", n)
	}
}

// The record that For returns matches a certificate with the key, and stays the same for a renewed certificate.
func TestFor(t *testing.T) {
	t.Parallel()
	c := issue(t, "mx.example.com", nil, nil)
	r, err := dane.For(c.PublicKey)
	if err != nil || r.String() != record(c, 3, 1, 1).String() || !strings.HasPrefix(r.String(), "3 1 1 ") {
		t.Fatalf("%s, %v", r, err)
	}
	match, err := dane.Parse([]dane.Record{r}).Verify(tls.ConnectionState{PeerCertificates: chain(c)}, nil, now)
	if err != nil || match.Method() != "dane-ee" {
		t.Errorf("%+v, %v", match, err)
	}
	if _, err := dane.For("no key"); err == nil {
		t.Error("For accepts a text")
	}
}

// FuzzParse parses arbitrary records and verifies a fixed chain with them. The first bytes of each record are its
// fields and the length of its data.
func FuzzParse(f *testing.F) {
	root := issue(f, "root", nil, authority)
	leaf := issue(f, "mx.example.com", root, server("mx.example.com"))
	encode := func(records ...dane.Record) (b []byte) {
		for _, r := range records {
			b = append(b, r.Usage, r.Selector, r.Matching, byte(len(r.Data)>>8), byte(len(r.Data)))
			b = append(b, r.Data...)
		}
		return b
	}
	f.Add(encode(record(leaf, 3, 1, 1), record(root, 2, 0, 0)))
	f.Add(encode(record(root, 2, 1, 2), record(leaf, 1, 0, 1), record(leaf, 3, 1, 0)))
	f.Add([]byte{3, 1, 1, 0, 200, 1})
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf.Certificate, root.Certificate}}
	f.Fuzz(func(t *testing.T, b []byte) {
		var records, reversed []dane.Record
		for len(b) >= 5 {
			n := min(int(b[3])<<8|int(b[4]), len(b)-5)
			records = append(records, dane.Record{Usage: b[0], Selector: b[1], Matching: b[2], Data: b[5 : 5+n]})
			b = b[5+n:]
		}
		for i := range records {
			reversed = append(reversed, records[len(records)-1-i])
		}
		s, again := dane.Parse(records), dane.Parse(reversed)
		match, err := s.Verify(state, []string{"mx.example.com"}, now)
		if err == nil && (!s.Usable() || match.Method() == "") {
			t.Errorf("verified by an unusable set: %+v", match)
		}
		other, err2 := again.Verify(state, []string{"mx.example.com"}, now)
		if (err == nil) != (err2 == nil) || match.Record.String() != other.Record.String() || s.Digest() != again.Digest() {
			t.Errorf("the order of records matters: %v, %v", err, err2)
		}
		for _, r := range s.Records() {
			if r.Usage != 2 && r.Usage != 3 || r.Selector > 1 || r.Matching > 2 || len(r.Data) == 0 {
				t.Errorf("%s is no usable record", r)
			}
		}
	})
}
