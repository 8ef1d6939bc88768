package dnsadvice

import (
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

//go:embed providers.toml
var embeddedProviders []byte

// Provider describes a DNS provider and its forms; see providers.toml. A field is empty if the fact is unknown.
type Provider struct {
	Name       string   `toml:"name"`
	Servers    []string `toml:"servers"`
	Link       string   `toml:"link"`
	NameField  string   `toml:"name_field"`
	ValueField string   `toml:"value_field"`
	CNAMEField string   `toml:"cname_field"`
	Zone       string   `toml:"zone"`
	Apex       string   `toml:"apex"`
	FinalDot   bool     `toml:"final_dot"`
	Priority   string   `toml:"priority"`
	LongText   string   `toml:"long_text"`
	Proxy      bool     `toml:"proxy"`
	Note       string   `toml:"note"`
}

// These are the values of the fields of Provider.
const (
	zoneAdded, zoneKept, zoneUnlessDot          = "added", "kept", "unless_dot"
	apexAt, apexEmpty, apexEither               = "@", "empty", "either"
	priorityField, priorityValue                = "field", "value"
	longTextWhole, longTextSplit, longTextOther = "whole", "split", "other"
)

// Limits on a file of providers.
const (
	providersMax = 1000
	serversMax   = 50
	fieldMax     = 500 // bytes
)

// EmbeddedProviders returns the providers of this release.
func EmbeddedProviders() []Provider {
	all, err := ParseProviders("providers.toml", embeddedProviders)
	if err != nil {
		panic(err) // TestEmbeddedProviders reads the file
	}
	return all
}

// ParseProviders reads a file of providers. The error joins all problems.
func ParseProviders(name string, data []byte) ([]Provider, error) {
	var file struct {
		Providers []Provider `toml:"providers"`
	}
	meta, err := toml.Decode(string(data), &file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var problems []error
	for _, key := range meta.Undecoded() {
		problems = append(problems, fmt.Errorf("%s: %s: is not a key of a provider; remove it", name, key))
	}
	if n := len(file.Providers); n == 0 || n > providersMax {
		problems = append(problems, fmt.Errorf("%s: has %d tables [[providers]]; 1 to %d are allowed", name, n, providersMax))
	}
	for i := range file.Providers {
		p := &file.Providers[i]
		for _, reason := range p.check() {
			problems = append(problems, fmt.Errorf("%s: provider %d (%s): %s", name, i+1, p.Name, reason))
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return file.Providers, nil
}

// check returns what is wrong with a provider's table.
func (p *Provider) check() (problems []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, f := range []struct{ key, value string }{{"name", p.Name}, {"link", p.Link}, {"name_field", p.NameField},
		{"value_field", p.ValueField}, {"cname_field", p.CNAMEField}, {"note", p.Note}} {
		if len(f.value) > fieldMax || strings.ContainsAny(f.value, "\r\n|") {
			problem("%s must be one line of at most %d bytes, without |", f.key, fieldMax)
		}
	}
	if p.Name == "" {
		problem("name is missing")
	}
	if n := len(p.Servers); n == 0 || n > serversMax {
		problem("servers must have 1 to %d patterns, such as *.ns.example.com", serversMax)
	}
	for _, s := range p.Servers {
		labels := strings.Split(s, ".")
		if s != strings.ToLower(s) || len(labels) < 3 || strings.Contains(strings.Join(labels[len(labels)-2:], ""), "*") &&
			!strings.HasPrefix(labels[len(labels)-2], "awsdns-") {
			problem("servers: %q must be a pattern in lower case whose last two labels are without *", s)
		}
	}
	link, err := url.Parse(strings.ReplaceAll(p.Link, "{zone}", "zone"))
	if p.Link != "" && (err != nil || link.Scheme != "https" || link.Host == "") {
		problem("link must begin with https://")
	}
	for _, f := range []struct {
		key, value string
		allowed    []string
	}{{"zone", p.Zone, []string{zoneAdded, zoneKept, zoneUnlessDot}}, {"apex", p.Apex, []string{apexAt, apexEmpty, apexEither}},
		{"priority", p.Priority, []string{priorityField, priorityValue}},
		{"long_text", p.LongText, []string{longTextWhole, longTextSplit, longTextOther}}} {
		if f.value != "" && !slices.Contains(f.allowed, f.value) {
			problem("%s must be %s", f.key, strings.Join(f.allowed, ", "))
		}
	}
	return problems
}

// Recognize returns the provider to which most of a zone's name servers belong. The result has no name if none of the
// providers has any of them.
func Recognize(providers []Provider, servers []string) (found Provider) {
	most := 0
	for i := range providers {
		n := 0
		for _, s := range servers {
			if slices.ContainsFunc(providers[i].Servers, func(pattern string) bool { return matches(pattern, s) }) {
				n++
			}
		}
		if n > most {
			found, most = providers[i], n
		}
	}
	return found
}

// matches reports whether a server's name matches a pattern of providers.toml.
func matches(pattern, server string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(strings.ToLower(strings.TrimSuffix(server, ".")), ".")
	if want[0] == "*" {
		if len(have) < len(want) {
			return false
		}
		want, have = want[1:], have[len(have)-len(want)+1:]
	}
	if len(want) != len(have) {
		return false
	}
	for i, label := range want {
		if prefix, open := strings.CutSuffix(label, "*"); open && !strings.HasPrefix(have[i], prefix) ||
			!open && label != have[i] {
			return false
		}
	}
	return true
}

// LinkTo returns the page on which the owner of a zone edits its records, or "".
func (p *Provider) LinkTo(zone string) string {
	return strings.ReplaceAll(p.Link, "{zone}", url.PathEscape(zone))
}

// textMax is the maximum length of one character string of a TXT record, in bytes (RFC 1035 section 3.3).
const textMax = 255

// EnterName returns what to enter in the field for the name of a record.
func (p *Provider) EnterName(zone, name string) string {
	switch {
	case p.Zone == zoneKept || !below(name, zone):
		return name
	case name == zone && p.Apex == apexEmpty:
		return ""
	case name == zone:
		return "@"
	}
	return strings.TrimSuffix(name, "."+zone)
}

// EnterValue returns what to enter in the field for the value of a record.
func (p *Provider) EnterValue(typ, value string, priority int) string {
	switch {
	case typ == "TXT" && len(value) > textMax && p.LongText == longTextSplit:
		var quoted []string
		for len(value) > textMax {
			quoted, value = append(quoted, `"`+value[:textMax]+`"`), value[textMax:]
		}
		return strings.Join(append(quoted, `"`+value+`"`), " ")
	case typ == "TXT" && p.LongText == longTextSplit:
		return `"` + value + `"`
	case typ == "TXT" || typ == "CAA":
		return value
	}
	if p.FinalDot {
		value += "."
	}
	if typ == "MX" && p.Priority == priorityValue {
		value = fmt.Sprintf("%d %s", priority, value)
	}
	return value
}

// fieldOf returns the provider's word for the field of a record's value.
func (p *Provider) fieldOf(typ string) string {
	if typ == "CNAME" && p.CNAMEField != "" {
		return p.CNAMEField
	}
	return p.ValueField
}
