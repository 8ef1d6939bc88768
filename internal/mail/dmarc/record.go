package dmarc

import (
	"net/url"
	"strings"
)

// Policy is what the owner of a domain requests for messages that fail DMARC.
type Policy string

// These are the policies (RFC 9989 section 4.7).
const (
	None       Policy = "none"
	Quarantine Policy = "quarantine"
	Reject     Policy = "reject"
)

// Suffix is the value of a psd tag: whether a domain is a public suffix. It is empty if the record does not say so.
type Suffix string

// These are the values of a psd tag that end a walk.
const (
	SuffixYes Suffix = "y" // the domain is a public suffix
	SuffixNo  Suffix = "n" // the domain is an organizational domain
)

// Record is a DMARC policy record (RFC 9989 section 4.7).
type Record struct {
	P, SP, NP             Policy // for the domain, for domains below it, and for those that do not exist; may be empty
	StrictDKIM, StrictSPF bool
	PSD                   Suffix
	Testing               bool     // whether the owner tests the policy, which is then applied one step milder
	RUA                   []string // URIs for aggregate reports
	// Invalid is set if p is missing or invalid, or if sp or np is invalid. Such a record stands for the policy "none"
	// if it asks for reports, and otherwise for no policy (RFC 9989 section 4.10.1).
	Invalid bool
}

// request returns the policy that the record requests, given the policy of the tag that applies.
func (r *Record) request(tag Policy) Policy {
	switch {
	case !r.Invalid:
		return tag
	case len(r.RUA) > 0:
		return None
	}
	return ""
}

// apply returns the policy that remains of a requested policy in test mode.
func (r *Record) apply(requested Policy) Policy {
	switch {
	case r.Testing && requested == Reject:
		return Quarantine
	case r.Testing && requested == Quarantine:
		return None
	}
	return requested
}

const blank = " \t"

// Parse reads a TXT record. The result is false if the record does not begin with the version tag of DMARC. Unknown
// tags and tags with mistakes are ignored; the first of several equal tags counts.
func Parse(text string) (r Record, ok bool) {
	version, rest, _ := strings.Cut(text, ";")
	name, value, _ := strings.Cut(version, "=")
	if strings.TrimRight(name, blank) != "v" || strings.Trim(value, blank) != "DMARC1" {
		return Record{}, false
	}
	tags := make(map[string]string)
	for tag := range strings.SplitSeq(rest, ";") {
		name, value, found := strings.Cut(tag, "=")
		name, value = strings.Trim(name, blank), strings.Trim(value, blank)
		if _, twice := tags[name]; found && !twice && isValue(value) {
			tags[name] = value
		}
	}
	r.P, r.Invalid = policy(tags["p"])
	for name, field := range map[string]*Policy{"sp": &r.SP, "np": &r.NP} {
		if value, has := tags[name]; has {
			var invalid bool
			*field, invalid = policy(value)
			r.Invalid = r.Invalid || invalid
		}
	}
	r.StrictDKIM, r.StrictSPF = strings.EqualFold(tags["adkim"], "s"), strings.EqualFold(tags["aspf"], "s")
	r.Testing = strings.EqualFold(tags["t"], "y")
	if psd := Suffix(strings.ToLower(tags["psd"])); psd == SuffixYes || psd == SuffixNo {
		r.PSD = psd
	}
	r.RUA = uris(tags["rua"])
	return r, true
}

func policy(value string) (p Policy, invalid bool) {
	switch p := Policy(strings.ToLower(value)); p {
	case None, Quarantine, Reject:
		return p, false
	}
	return "", true
}

// isValue reports whether a value consists of the characters that RFC 9989 section 4.8 allows.
func isValue(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' {
			return false
		}
	}
	return value != ""
}

// uris returns the valid URIs of a list. RFC 7489 allowed a maximum size after an exclamation mark, which is ignored
// now (RFC 9989 appendix C).
func uris(list string) (all []string) {
	for item := range strings.SplitSeq(list, ",") {
		item, _, _ = strings.Cut(strings.Trim(item, blank), "!")
		u, err := url.Parse(item)
		if err != nil || u.Scheme == "" || u.Opaque == "" && u.Host == "" {
			continue
		}
		if at := strings.LastIndexByte(u.Opaque, '@'); u.Scheme == "mailto" && (at <= 0 || at == len(u.Opaque)-1) {
			continue
		}
		all = append(all, item)
	}
	return all
}
