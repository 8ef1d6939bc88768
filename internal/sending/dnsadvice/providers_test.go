package dnsadvice_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/sending/dnsadvice"
)

func TestRecognize(t *testing.T) {
	t.Parallel()
	all := dnsadvice.EmbeddedProviders()
	for servers, want := range map[string]string{
		"ada.ns.cloudflare.com bob.ns.cloudflare.com":                      "Cloudflare",
		"ns-12.awsdns-01.com ns-700.awsdns-23.net ns-1900.awsdns-45.co.uk": "Amazon Route 53",
		"NS07.DOMAINCONTROL.COM. ns08.domaincontrol.com.":                  "GoDaddy",
		"ns-cloud-a1.googledomains.com":                                    "Google Cloud DNS",
		"ns1-05.azure-dns.com ns2-05.azure-dns.net":                        "Azure DNS",
		"ns1045.ui-dns.org ns1045.ui-dns.biz":                              "IONOS",
		"ns1.acme.com ns2.acme.com":                                        "",
		"evilcloudflare.com ns.cloudflare.com.evil.test":                   "",
		"ns.cloudflare.com":                                                "",
		"a.ns.cloudflare.com ns1.hover.com ns2.hover.com":                  "Hover",
		"": "",
	} {
		if got := dnsadvice.Recognize(all, strings.Fields(servers)); got.Name != want {
			t.Errorf("%s: %q, want %q", servers, got.Name, want)
		}
	}
}

func TestEmbeddedProviders(t *testing.T) {
	t.Parallel()
	all := dnsadvice.EmbeddedProviders()
	if len(all) < 25 {
		t.Errorf("only %d providers", len(all))
	}
	seen := map[string]string{}
	for _, p := range all {
		for _, s := range p.Servers {
			if other, twice := seen[s]; twice {
				t.Errorf("%s belongs to %s and %s", s, other, p.Name)
			}
			seen[s] = p.Name
			example := strings.ReplaceAll(s, "*", "x")
			if got := dnsadvice.Recognize(all, []string{example}); got.Name != p.Name {
				t.Errorf("%s is recognized as %q, want %s", example, got.Name, p.Name)
			}
		}
	}
}

// A file of an operator that is wrong is refused, with the provider and the key.
func TestParseProviders(t *testing.T) {
	t.Parallel()
	const start = "[[providers]]\nname = \"Own\"\nservers = [\"*.ns.example.com\"]\n"
	for data, want := range map[string]string{
		start:                            "",
		start + `zone = "kept"`:          "",
		"":                               "has 0 tables",
		"x":                              "p.toml: ",
		start + `colour = "red"`:         "colour: is not a key",
		start + `zone = "none"`:          "zone must be added, kept, unless_dot",
		start + `link = "http://x.test"`: "link must begin with https://",
		start + "note = \"a\\nb\"":       "note must be one line",
		"[[providers]]\nname = \"Own\"":  "servers must have 1 to 50",
		strings.Replace(start, "*.ns.", "*.*.", 1):             "",
		strings.Replace(start, "*.ns.example.com", "*", 1):     "must be a pattern",
		strings.Replace(start, "*.ns.example.com", "com", 1):   "must be a pattern",
		strings.Replace(start, "*.ns.example.com", "*.com", 1): "must be a pattern",
		strings.Replace(start, "name", "note", 1):              "name is missing",
	} {
		_, err := dnsadvice.ParseProviders("p.toml", []byte(data))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", data, err, want)
		}
	}
}

func TestEnter(t *testing.T) {
	t.Parallel()
	long := "v=DKIM1; p=" + strings.Repeat("x", 300)
	for _, c := range []struct {
		p                          dnsadvice.Provider
		name, typ, value, at, text string
	}{
		{dnsadvice.Provider{}, "send.acme.com", "MX", "mx.test", "send", "mx.test"},
		{dnsadvice.Provider{}, "acme.com", "TXT", "x", "@", "x"},
		{dnsadvice.Provider{Apex: "empty"}, "acme.com", "TXT", "x", "", "x"},
		{dnsadvice.Provider{Zone: "kept"}, "send.acme.com", "TXT", "x", "send.acme.com", "x"},
		{dnsadvice.Provider{}, "send.other.com", "TXT", "x", "send.other.com", "x"},
		{dnsadvice.Provider{FinalDot: true}, "links.acme.com", "CNAME", "l.test", "links", "l.test."},
		{dnsadvice.Provider{FinalDot: true}, "send.acme.com", "TXT", "x", "send", "x"},
		{dnsadvice.Provider{Priority: "value", FinalDot: true}, "send.acme.com", "MX", "mx.test", "send", "10 mx.test."},
		{dnsadvice.Provider{LongText: "split"}, "k.acme.com", "TXT", long, "k", `"` + long[:255] + `" "` + long[255:] + `"`},
		{dnsadvice.Provider{LongText: "split"}, "k.acme.com", "TXT", "short", "k", `"short"`},
		{dnsadvice.Provider{LongText: "whole"}, "k.acme.com", "TXT", long, "k", long},
	} {
		if at, text := c.p.EnterName("acme.com", c.name), c.p.EnterValue(c.typ, c.value, 10); at != c.at || text != c.text {
			t.Errorf("%s %s: %q %q, want %q %q", c.name, c.typ, at, text, c.at, c.text)
		}
	}
}

// The guide and the data say the same about each provider.
func TestGuide(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../docs/guides/dns-providers.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows, others []string
	for _, p := range dnsadvice.EmbeddedProviders() {
		if p.NameField == "" {
			others = append(others, p.Name)
			continue
		}
		zone := map[string]string{"added": "yes", "kept": "no", "unless_dot": "yes, unless the name ends with a dot"}[p.Zone] +
			map[string]string{"@": "; `@` is the zone itself", "empty": "; empty is the zone itself",
				"either": "; `@` or empty is the zone itself"}[p.Apex]
		value := p.ValueField
		if p.CNAMEField != "" {
			value += "; " + p.CNAMEField + " for a CNAME"
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s |", p.Name, p.NameField, value, zone, p.Note))
	}
	last := len(others) - 1
	guide := strings.Join(strings.Fields(string(data)), " ")
	for _, want := range []string{strings.Join(rows, "\n"),
		"recognizes: " + strings.Join(others[:last], ", ") + " and " + others[last] + "."} {
		if !strings.Contains(guide, strings.Join(strings.Fields(want), " ")) {
			t.Errorf("docs/guides/dns-providers.md lacks:\n%s", want)
		}
	}
}

// The page about domains lists the code of each problem.
func TestDocumentedCodes(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../docs/domains.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, c := range dnsadvice.Codes {
		fmt.Fprintf(&table, "| `%s` | %s |\n", c.Name, c.Meaning)
	}
	if !strings.Contains(string(data), table.String()) {
		t.Errorf("docs/domains.md lacks this table:\n%s", table.String())
	}
}

// The page about settings explains each key of a provider.
func TestDocumentedKeys(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../docs/operating/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	for f := range reflect.TypeFor[dnsadvice.Provider]().Fields() {
		if key := f.Tag.Get("toml"); !strings.Contains(string(data), "\n| `"+key+"` | ") {
			t.Errorf("docs/operating/settings.md does not explain %s", key)
		}
	}
	_, text, _ := strings.Cut(string(data), "```toml\n[[providers]]\n")
	text, _, _ = strings.Cut(text, "```")
	if _, err := dnsadvice.ParseProviders("the example", []byte("[[providers]]\n"+text)); err != nil {
		t.Error(err)
	}
}
