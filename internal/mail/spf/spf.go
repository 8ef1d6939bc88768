// Package spf reads SPF records (RFC 7208): it finds them among the TXT records of a name, and parses their terms.
//
// # Invariants
//
//   - A term without an error has a known mechanism or is a modifier, and all its fields are valid.
//   - A domain is in lower case and without a final dot, unless it contains macros.
//
// # Failures
//
// The error of an invalid term is the predicate of a sentence about the term, such as "names no domain". The fields of
// an invalid term hold what could be read, so that a caller may go on with it.
//
// # Out of scope
//
// The package makes no look-ups, evaluates no record (package authres does), expands no macros and does not check their
// syntax. It does not compare records with wanted ones (package dnstext does).
package spf

import (
	"cmp"
	"errors"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// ErrNoDomain means that a term must name a domain, but does not name one with at least two labels.
var ErrNoDomain = errors.New("names no domain")

var (
	errNoTerm    = errors.New("is no term")
	errAll       = errors.New("must be all alone")
	errLength    = errors.New("has an invalid prefix length")
	errNetwork   = errors.New("is no address or network")
	errMechanism = errors.New("is a mechanism that does not exist")
)

// IsRecord reports whether a TXT value is an SPF record (RFC 7208 section 4.5).
func IsRecord(text string) bool {
	version, _, _ := strings.Cut(text, " ")
	return strings.EqualFold(version, "v=spf1")
}

// Find returns the SPF records among TXT values. If there are several, receivers use none of them.
func Find(texts []string) (records []string) {
	for _, text := range texts {
		if IsRecord(text) {
			records = append(records, text)
		}
	}
	return records
}

// Term is a term of a record after the version: a mechanism or a modifier.
type Term struct {
	Modifier  bool
	Qualifier byte   // one of + - ? ~; 0 for a modifier
	Name      string // of the mechanism or modifier, in lower case
	Spec      string // the text after the name, such as :example.com/24
	// Domain is the domain spec. It is empty if the term refers to the domain of its record, and for terms that name no
	// domain.
	Domain       string
	Bits4, Bits6 int          // prefix lengths of a and mx; -1 means whole addresses
	Network      netip.Prefix // of ip4 and ip6
}

// String returns the term without its qualifier.
func (t *Term) String() string { return t.Name + t.Spec }

// HasMacro reports whether the domain depends on the sender.
func (t *Term) HasMacro() bool { return strings.Contains(t.Domain, "%") }

// The grammars of a modifier's name (RFC 7208 section 12), and of a domain without macros.
var (
	modifierName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*$`)
	domainName   = regexp.MustCompile(`^([a-z0-9_-]+\.)+[a-z0-9_-]+$`)
)

// ParseTerm parses a term (RFC 7208 sections 4.6.1, 5 and 6). Unknown modifiers are valid, because receivers ignore
// them.
func ParseTerm(text string) (Term, error) {
	t := Term{Bits4: -1, Bits6: -1}
	if name, value, ok := strings.Cut(text, "="); ok && !strings.ContainsAny(name, ":/") {
		t.Modifier, t.Name, t.Spec = true, strings.ToLower(name), "="+value
		switch {
		case !modifierName.MatchString(name):
			return t, errNoTerm
		case t.Name == "redirect" || t.Name == "exp":
			return t, t.setDomain(value)
		}
		return t, nil
	}
	t.Qualifier = '+'
	if text != "" && strings.IndexByte("+-?~", text[0]) >= 0 {
		t.Qualifier, text = text[0], text[1:]
	}
	t.Name = text
	if end := strings.IndexAny(text, ":/"); end >= 0 {
		t.Name, t.Spec = text[:end], text[end:]
	}
	t.Name = strings.ToLower(t.Name)
	return t, t.parseSpec()
}

// parseSpec parses the spec of a mechanism.
func (t *Term) parseSpec() (err error) {
	value, colon := strings.CutPrefix(t.Spec, ":")
	switch t.Name {
	case "all":
		if t.Spec != "" {
			return errAll
		}
	case "include", "exists":
		return t.setDomain(value)
	case "a", "mx", "ptr":
		end := strings.LastIndexByte(value, '}') + 1 // macros may contain slashes
		if slash := strings.IndexByte(value[end:], '/'); slash >= 0 {
			err = t.setLengths(value[end+slash:])
			value = value[:end+slash]
		}
		if colon || value != "" {
			return cmp.Or(t.setDomain(value), err)
		}
		return err
	case "ip4", "ip6":
		if t.Network, err = parseNetwork(value); err != nil || t.Network.Addr().Is6() != (t.Name == "ip6") {
			return errNetwork
		}
	default:
		return errMechanism
	}
	return nil
}

// setDomain sets the domain to a domain spec, which may be any text if it contains macros.
func (t *Term) setDomain(spec string) error {
	if t.Domain = spec; t.HasMacro() {
		if len(spec) > 255 {
			return ErrNoDomain
		}
		return nil
	}
	t.Domain = strings.ToLower(strings.TrimSuffix(spec, "."))
	if len(t.Domain) > 253 || !domainName.MatchString(t.Domain) {
		return ErrNoDomain
	}
	return nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		return netip.ParsePrefix(text)
	}
	a, err := netip.ParseAddr(text)
	return netip.PrefixFrom(a, a.BitLen()), err
}

// setLengths sets the prefix lengths to the end of a mechanism, such as /24, //64 or /24//64. Invalid lengths are -1.
func (t *Term) setLengths(text string) error {
	four, six, both := strings.Cut(text, "//")
	number := func(text string, most int) int {
		if n, err := strconv.Atoi(text); err == nil && n >= 0 && n <= most {
			return n
		}
		return -1
	}
	t.Bits4, t.Bits6 = number(strings.TrimPrefix(four, "/"), 32), number(six, 128)
	if four != "" && t.Bits4 < 0 || both && t.Bits6 < 0 || t.Name == "ptr" {
		return errLength
	}
	return nil
}
