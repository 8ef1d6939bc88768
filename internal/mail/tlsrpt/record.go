package tlsrpt

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/postrider/postrider/internal/mail/message"
)

// ErrNoRecord means that a domain asks for no reports.
var ErrNoRecord = errors.New("no TLS reporting record")

const (
	version    = "TLSRPTv1"
	maxRecord  = 4 << 10 // bytes
	maxTargets = 8
	maxURL     = 2048 // bytes
)

// Record says where a domain wants its reports.
type Record struct {
	Targets []Target
}

// Target receives reports: a mail address or an https URL. One of the fields is "".
type Target struct {
	Address string
	URL     string
}

// String returns the target as a URI.
func (t Target) String() string {
	if t.Address != "" {
		return "mailto:" + t.Address
	}
	return t.URL
}

// RecordName returns the name of the TXT record for a policy domain.
func RecordName(domain string) string { return "_smtp._tls." + domain }

// FindRecord returns the TLS reporting record among the TXT records of one name (RFC 8460 section 3). Records that
// begin otherwise are ignored. The error is ErrNoRecord if no TLS reporting record is left. A domain with several such
// records gets no reports.
func FindRecord(texts []string) (Record, error) {
	var found []string
	for _, text := range texts {
		if first, _, _ := strings.Cut(text, ";"); strings.TrimRight(first, " \t") == "v="+version {
			found = append(found, text)
		}
	}
	switch len(found) {
	case 0:
		return Record{}, ErrNoRecord
	case 1:
		return ParseRecord(found[0])
	}
	return Record{}, fmt.Errorf("%d TLS reporting records instead of one", len(found))
}

// ParseRecord parses a record such as "v=TLSRPTv1; rua=mailto:reports@example.com". Targets of other schemes, targets
// that are invalid, and targets beyond the eighth are ignored. It is an error if no target is left.
func ParseRecord(text string) (r Record, err error) {
	if len(text) > maxRecord {
		return r, fmt.Errorf("the record has more than %d bytes", maxRecord)
	}
	fields := strings.Split(text, ";")
	if strings.TrimRight(fields[0], " \t") != "v="+version {
		return r, fmt.Errorf("the record does not begin with v=%s", version)
	}
	var wrong error
	for i, field := range fields[1:] {
		field = strings.Trim(field, " \t")
		if field == "" && i == len(fields)-2 {
			break // the record ends with a semicolon
		}
		name, value, ok := strings.Cut(field, "=")
		name, value = strings.TrimRight(name, " \t"), strings.TrimLeft(value, " \t")
		switch {
		case !ok || !isFieldName(name) || strings.ContainsFunc(value, isControl):
			return Record{}, fmt.Errorf("the field %.80q of the record is not a name and a value", field)
		case name == "rua":
			err := r.add(value)
			wrong = errors.Join(wrong, err)
		}
	}
	if len(r.Targets) == 0 {
		if wrong == nil {
			wrong = errors.New("the record has no rua")
		}
		return Record{}, wrong
	}
	return r, nil
}

// add adds the usable targets of a list. The error is about the others.
func (r *Record) add(list string) (wrong error) {
	for text := range strings.SplitSeq(list, ",") {
		t, err := parseTarget(strings.Trim(text, " \t"))
		if err != nil {
			wrong = errors.Join(wrong, err)
			continue
		}
		known := false
		for _, other := range r.Targets {
			known = known || other == t
		}
		if !known && len(r.Targets) < maxTargets {
			r.Targets = append(r.Targets, t)
		}
	}
	return wrong
}

func parseTarget(text string) (t Target, err error) {
	if len(text) > maxURL {
		return t, fmt.Errorf("a target of the record has more than %d bytes", maxURL)
	}
	scheme, rest, _ := strings.Cut(text, ":")
	switch strings.ToLower(scheme) {
	case "mailto":
		return parseMailto(rest)
	case "https":
		return parseHTTPS(text)
	}
	return t, fmt.Errorf("the target %.80q of the record is neither a mailto nor an https URI", text)
}

// parseMailto returns the address of a mailto URI without its scheme. Fields after a question mark are ignored.
func parseMailto(text string) (t Target, err error) {
	path, _, _ := strings.Cut(text, "?")
	if path, err = url.PathUnescape(path); err != nil {
		return t, fmt.Errorf("the target mailto:%.80q of the record is invalid", text)
	}
	local, domain, err := message.ParseSpec(path)
	if err != nil {
		return t, fmt.Errorf("the target mailto:%.80q of the record is not one address: %w", text, err)
	}
	return Target{Address: local + "@" + domain}, nil
}

func parseHTTPS(text string) (Target, error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Hostname() == "" || u.User != nil || strings.HasSuffix(u.Host, ":") ||
		strings.ContainsFunc(text, isControl) {
		return Target{}, fmt.Errorf("the target %.80q of the record is not a URL", text)
	}
	u.Fragment, u.RawFragment = "", ""
	return Target{URL: u.String()}, nil
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// isFieldName reports whether text is a valid name of a record's field.
func isFieldName(text string) bool {
	if text == "" || len(text) > 32 {
		return false
	}
	for i := range len(text) {
		c := text[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '_' && c != '-' && c != '.') {
			return false
		}
	}
	return true
}
