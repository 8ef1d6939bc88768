// Package dane decides whether the certificate of a mail host matches the TLSA records of the host (RFC 6698, RFC 7671,
// RFC 7672).
//
// # Invariants
//
//   - The package performs no I/O and has no clock. The caller looks up the records, makes sure that they were
//     authenticated by DNSSEC, and passes the time.
//   - A record is usable only if a mail client must obey it: usage 2 (DANE-TA) or 3 (DANE-EE), a known selector and
//     matching type, and data of the right form. No other record can make a verification succeed.
//   - A Set is immutable and safe for concurrent use.
//
// # Failures
//
// Verify returns an error that says in one sentence why the certificate is not accepted. The caller then sends nothing
// to the host. A Set without usable records verifies nothing; for such a host, RFC 7672 demands encryption without
// verification.
//
// # Out of scope
//
// The package does not validate DNSSEC, and does not evaluate the usages 0 and 1, which depend on public authorities.
// It never uses the common name of a certificate as a host name.
package dane

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// These are the certificate usages that mail clients obey (RFC 7672 section 3.1).
const (
	UsageTA = 2 // DANE-TA: the record describes an authority that issued the certificate
	UsageEE = 3 // DANE-EE: the record describes the certificate itself
)

// These values say which part of a certificate a record describes.
const (
	SelectorCert = 0 // the whole certificate
	SelectorKey  = 1 // its public key (SubjectPublicKeyInfo)
)

// These values say in which form a record describes that part.
const (
	MatchingFull   = 0 // the part itself
	MatchingSHA256 = 1
	MatchingSHA512 = 2
)

// Record is the data of one TLSA record (RFC 6698 section 2.1). Data must not be modified.
type Record struct {
	Usage    uint8
	Selector uint8
	Matching uint8
	Data     []byte
}

// String returns the data of the record as in a zone file, such as "3 1 1 0a1b…".
func (r Record) String() string {
	return fmt.Sprintf("%d %d %d %s", r.Usage, r.Selector, r.Matching, hex.EncodeToString(r.Data))
}

// For returns the record 3 1 1 to publish for a host whose certificate has the given public key. The record stays valid
// when the certificate is renewed with the same key.
func For(key crypto.PublicKey) (Record, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return Record{}, fmt.Errorf("encode the public key for a TLSA record: %w", err)
	}
	sum := sha256.Sum256(der)
	return Record{Usage: UsageEE, Selector: SelectorKey, Matching: MatchingSHA256, Data: sum[:]}, nil
}

// value returns the data that the record would need to have to match the certificate.
func (r *Record) value(c *x509.Certificate) []byte {
	part := c.Raw
	if r.Selector == SelectorKey {
		part = c.RawSubjectPublicKeyInfo
	}
	switch r.Matching {
	case MatchingSHA256:
		sum := sha256.Sum256(part)
		return sum[:]
	case MatchingSHA512:
		sum := sha512.Sum512(part)
		return sum[:]
	}
	return part
}

func (r *Record) equal(o *Record) bool {
	return r.Usage == o.Usage && r.Selector == o.Selector && r.Matching == o.Matching && bytes.Equal(r.Data, o.Data)
}

// Set holds the usable TLSA records of one host. The nil Set has none.
type Set struct {
	records   []Record            // usable, without duplicates, in the order of compare
	anchors   []*x509.Certificate // certificates in records 2 0 0
	unusable  []string
	authority bool // whether a record has usage 2
}

// maxUnusable is the maximum number of records that Unusable describes.
const maxUnusable = 8

// Parse returns the usable records of a host. For each usage and selector, only the digests of the strongest type count
// (RFC 7671 section 9). Records that contain a whole certificate or key always count.
func Parse(records []Record) *Set {
	s := new(Set)
	for i := range records {
		r := records[i]
		anchor, err := check(&r)
		if err != nil {
			if len(s.unusable) < maxUnusable {
				s.unusable = append(s.unusable, fmt.Sprintf("%d %d %d: %v", r.Usage, r.Selector, r.Matching, err))
			}
			continue
		}
		s.records = append(s.records, r)
		s.authority = s.authority || r.Usage == UsageTA
		if anchor != nil {
			s.anchors = append(s.anchors, anchor)
		}
	}
	slices.SortFunc(s.records, compare)
	s.records = slices.CompactFunc(s.records, func(a, b Record) bool { return a.equal(&b) })
	s.records = withoutWeak(s.records)
	return s
}

// compare orders records so that the strongest digests of each usage and selector come first.
func compare(a, b Record) int {
	return cmp.Or(cmp.Compare(b.Usage, a.Usage), cmp.Compare(b.Selector, a.Selector),
		cmp.Compare(b.Matching, a.Matching), bytes.Compare(a.Data, b.Data))
}

// withoutWeak removes digests if there is a stronger one with the same usage and selector. The records are sorted.
func withoutWeak(records []Record) []Record {
	kept := records[:0]
	for _, r := range records {
		if n := len(kept); n > 0 && r.Matching != MatchingFull && kept[n-1].Usage == r.Usage &&
			kept[n-1].Selector == r.Selector && kept[n-1].Matching > r.Matching {
			continue
		}
		kept = append(kept, r)
	}
	return kept
}

// check returns an error that says why a record is unusable. If the record contains the certificate of an authority,
// check returns that certificate.
func check(r *Record) (anchor *x509.Certificate, err error) {
	want := 0
	switch {
	case r.Usage != UsageTA && r.Usage != UsageEE:
		return nil, fmt.Errorf("mail clients do not use the usage %d", r.Usage)
	case r.Selector > SelectorKey:
		return nil, fmt.Errorf("the selector %d is unknown", r.Selector)
	case r.Matching == MatchingFull && r.Selector == SelectorCert:
		c, err := x509.ParseCertificate(r.Data)
		if err != nil {
			return nil, fmt.Errorf("the data is no certificate: %w", err)
		}
		if r.Usage == UsageTA {
			return c, nil
		}
		return nil, nil
	case r.Matching == MatchingFull:
		if _, err := x509.ParsePKIXPublicKey(r.Data); err != nil {
			return nil, fmt.Errorf("the data is no public key: %w", err)
		}
		return nil, nil
	case r.Matching == MatchingSHA256:
		want = sha256.Size
	case r.Matching == MatchingSHA512:
		want = sha512.Size
	default:
		return nil, fmt.Errorf("the matching type %d is unknown", r.Matching)
	}
	if len(r.Data) != want {
		return nil, fmt.Errorf("the digest has %d bytes instead of %d", len(r.Data), want)
	}
	return nil, nil
}

// Usable reports whether the set has a record that a mail client must obey.
func (s *Set) Usable() bool { return s != nil && len(s.records) > 0 }

// Records returns the records that count. The result must not be modified.
func (s *Set) Records() []Record {
	if s == nil {
		return nil
	}
	return s.records
}

// Unusable describes the first records that do not count, with the reason for each.
func (s *Set) Unusable() []string {
	if s == nil {
		return nil
	}
	return s.unusable
}

// Digest returns a short text that is equal for two sets only if Verify gives the same results for both. It is "" for a
// set without usable records. A connection that was verified with one set may serve another one with the same digest.
//
// The names are those that are passed to Verify. They change the digest only if the set has records with usage 2,
// because usage 3 ignores names. The order and the case of names do not matter.
func (s *Set) Digest(names ...string) string {
	if !s.Usable() {
		return ""
	}
	h := sha256.New()
	part := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
		h.Write(b)
	}
	for _, r := range s.records {
		h.Write([]byte{r.Usage, r.Selector, r.Matching})
		part(r.Data)
	}
	if s.authority {
		folded := make([]string, len(names))
		for i, name := range names {
			folded[i] = strings.ToLower(name)
		}
		slices.Sort(folded)
		h.Write([]byte("names"))
		for _, name := range slices.Compact(folded) {
			part([]byte(name))
		}
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}
