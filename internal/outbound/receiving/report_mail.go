package receiving

import (
	"strings"

	"github.com/postrider/postrider/internal/mail/mailparse"
)

// reportFields are header fields of emails that carry TLS reports (RFC 8460 section 5.3).
var reportFields = []string{"TLS-Report-Domain", "TLS-Report-Submitter"}

// carriesReport reports whether a message contains a DMARC or TLS report, a bounce, or a complaint. DMARC reports leave
// such messages out, because two installations would otherwise exchange reports endlessly.
func carriesReport(p *mailparse.Parsed) bool {
	if hasPrefixFold(strings.TrimSpace(p.Subject), "Report Domain:") {
		return true
	}
	for _, f := range p.Header {
		for _, name := range reportFields {
			if strings.EqualFold(f.Name, name) {
				return true
			}
		}
		if strings.EqualFold(f.Name, "Content-Type") && hasPrefixFold(strings.TrimSpace(f.Value), "multipart/report") {
			return true
		}
	}
	for i := range p.Files {
		// Such as receiver.example!example.com!1700000000!1700086399.xml.gz (RFC 9990 section 3.5.2).
		name := strings.ToLower(p.Files[i].Filename)
		if strings.Count(name, "!") < 3 {
			continue
		}
		for _, end := range []string{".xml", ".xml.gz", ".zip", ".json", ".json.gz"} {
			if strings.HasSuffix(name, end) {
				return true
			}
		}
	}
	return false
}

func hasPrefixFold(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}
