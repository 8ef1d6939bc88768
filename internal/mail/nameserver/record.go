package nameserver

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

const (
	maxTTL   = 7 * 24 * 3600 // maximum TTL of a record, in seconds
	maxText  = 4096          // maximum length of the text of a TXT record, in bytes
	maxName  = 253           // maximum length of a name, in bytes
	maxLabel = 63            // maximum length of a label, in bytes
)

// rr returns the resource record for r, whose name must lie in the zone.
func (r Record) rr(zone string) (dns.RR, error) {
	if err := checkOwner(r.Name); err != nil {
		return nil, err
	}
	if r.Name != zone && !strings.HasSuffix(r.Name, "."+zone) {
		return nil, fmt.Errorf("the name is not in the zone %s", zone)
	}
	if r.TTL < 1 || r.TTL > maxTTL {
		return nil, fmt.Errorf("the TTL %d is not between 1 and %d seconds", r.TTL, maxTTL)
	}
	typ, ok := dns.StringToType[r.Type]
	build := builders[typ]
	if !ok || build == nil {
		return nil, errors.New("records of this type are not supported; use A, AAAA, CNAME, MX, TXT, TLSA or CAA")
	}
	return build(dns.RR_Header{Name: r.Name + ".", Rrtype: typ, Class: dns.ClassINET, Ttl: r.TTL}, r.Value)
}

// builders lists the functions that parse the value of a record, by the record's type.
var builders = map[uint16]func(dns.RR_Header, string) (dns.RR, error){
	dns.TypeA:     buildA,
	dns.TypeAAAA:  buildAAAA,
	dns.TypeCNAME: buildCNAME,
	dns.TypeMX:    buildMX,
	dns.TypeTXT:   buildTXT,
	dns.TypeTLSA:  buildTLSA,
	dns.TypeCAA:   buildCAA,
}

func buildA(h dns.RR_Header, value string) (dns.RR, error) {
	a, err := netip.ParseAddr(value)
	if err != nil || !a.Is4() {
		return nil, fmt.Errorf("%q is not an IPv4 address", value)
	}
	return &dns.A{Hdr: h, A: a.AsSlice()}, nil
}

func buildAAAA(h dns.RR_Header, value string) (dns.RR, error) {
	a, err := netip.ParseAddr(value)
	if err != nil || !a.Is6() || a.Is4In6() || a.Zone() != "" {
		return nil, fmt.Errorf("%q is not an IPv6 address", value)
	}
	return &dns.AAAA{Hdr: h, AAAA: a.AsSlice()}, nil
}

func buildCNAME(h dns.RR_Header, value string) (dns.RR, error) {
	if err := checkName(value); err != nil {
		return nil, err
	}
	return &dns.CNAME{Hdr: h, Target: value + "."}, nil
}

func buildMX(h dns.RR_Header, value string) (dns.RR, error) {
	number, host, ok := strings.Cut(value, " ")
	preference, err := strconv.ParseUint(number, 10, 16)
	if !ok || err != nil {
		return nil, fmt.Errorf("%q is not a preference and a host, such as %q", value, "10 mail.example.com")
	}
	if host == "." { // a null MX (RFC 7505)
		return &dns.MX{Hdr: h, Preference: uint16(preference), Mx: "."}, nil
	}
	if err := checkName(host); err != nil {
		return nil, err
	}
	return &dns.MX{Hdr: h, Preference: uint16(preference), Mx: host + "."}, nil
}

// buildTXT splits the text into strings of at most 255 bytes, which readers join again.
func buildTXT(h dns.RR_Header, value string) (dns.RR, error) {
	if value == "" || len(value) > maxText {
		return nil, fmt.Errorf("the text has %d bytes instead of 1 to %d", len(value), maxText)
	}
	for i := range len(value) {
		if value[i] < ' ' || value[i] == 0x7f {
			return nil, errors.New("the text contains a control character")
		}
	}
	t := &dns.TXT{Hdr: h}
	for len(value) > 0 {
		n := min(len(value), 255)
		// The library reads a backslash as the start of an escape sequence.
		t.Txt = append(t.Txt, strings.ReplaceAll(value[:n], `\`, `\\`))
		value = value[n:]
	}
	return t, nil
}

func buildTLSA(h dns.RR_Header, value string) (dns.RR, error) {
	fields := strings.Fields(value)
	if len(fields) != 4 {
		return nil, fmt.Errorf("%q is not a TLSA record, such as %q", value, "3 1 1 <digest in hexadecimal>")
	}
	var numbers [3]uint8
	for i := range numbers {
		n, err := strconv.ParseUint(fields[i], 10, 8)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number of at most 255", fields[i])
		}
		numbers[i] = uint8(n)
	}
	data, err := hex.DecodeString(fields[3])
	if err != nil || len(data) == 0 || len(data) > 4096 {
		return nil, errors.New("the certificate data is not 1 to 4096 bytes in hexadecimal")
	}
	return &dns.TLSA{Hdr: h, Usage: numbers[0], Selector: numbers[1], MatchingType: numbers[2],
		Certificate: hex.EncodeToString(data)}, nil
}

func buildCAA(h dns.RR_Header, value string) (dns.RR, error) {
	fields := strings.SplitN(value, " ", 3)
	if len(fields) != 3 {
		return nil, fmt.Errorf("%q is not a CAA record, such as %q", value, `0 issue "ca.example"`)
	}
	flags, err := strconv.ParseUint(fields[0], 10, 8)
	if err != nil {
		return nil, fmt.Errorf("%q is not a number of at most 255", fields[0])
	}
	tag, text := fields[1], strings.Trim(fields[2], `"`)
	if tag == "" || len(tag) > 15 || strings.Trim(tag, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return nil, fmt.Errorf("%q is not a tag of lower-case letters and digits", tag)
	}
	unprintable := func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }
	if len(text) > 255 || strings.ContainsFunc(text, unprintable) {
		return nil, fmt.Errorf("%q is not a value of at most 255 printable characters", text)
	}
	return &dns.CAA{Hdr: h, Flag: uint8(flags), Tag: tag, Value: text}, nil
}

// checkOwner checks the name of a record, whose first label may be "*".
func checkOwner(name string) error {
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		if len(name) > maxName {
			return fmt.Errorf("%q is longer than %d bytes", name, maxName)
		}
		return checkName(rest)
	}
	return checkName(name)
}

// checkName checks that name consists of labels of lower-case letters, digits, "-" and "_", without a final dot.
func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("%q is not a name of 1 to %d bytes", name, maxName)
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel {
			return fmt.Errorf("%q has a label that is empty or longer than %d bytes", name, maxLabel)
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return fmt.Errorf("%q contains characters other than lower-case letters, digits, %q and %q", name, "-", "_")
			}
		}
	}
	return nil
}

// MailboxName returns an email address as a domain name, the form that SOA records have (RFC 1035 section 8). The local
// part is the first label, and its dots are escaped.
func MailboxName(address string) string {
	local, domain, _ := strings.Cut(address, "@")
	return strings.ToLower(strings.ReplaceAll(local, ".", `\.`) + "." + domain)
}

// checkMailbox checks a name that MailboxName returns. The first label may contain escaped dots and plus signs.
func checkMailbox(name string) error {
	local, domain, _ := strings.Cut(strings.ReplaceAll(name, `\.`, "_"), ".")
	return checkName(strings.ReplaceAll(local, "+", "_") + "." + domain)
}
