package tlsrpt

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// The following types have the fields of a report in the order of RFC 8460 section 4.4.

type wireReport struct {
	Organization string       `json:"organization-name"`
	Range        wireRange    `json:"date-range"`
	Contact      string       `json:"contact-info"`
	ID           string       `json:"report-id"`
	Policies     []wirePolicy `json:"policies"`
}

type wireRange struct {
	Start string `json:"start-datetime"`
	End   string `json:"end-datetime"`
}

type wirePolicy struct {
	Policy struct {
		Type    PolicyType `json:"policy-type"`
		Strings []string   `json:"policy-string,omitempty"`
		Domain  string     `json:"policy-domain"`
		MX      []string   `json:"mx-host,omitempty"`
	} `json:"policy"`
	Summary struct {
		Successful int64 `json:"total-successful-session-count"`
		Failed     int64 `json:"total-failure-session-count"`
	} `json:"summary"`
	Failures []wireFailure `json:"failure-details,omitempty"`
}

type wireFailure struct {
	Result      Result `json:"result-type"`
	SendingIP   string `json:"sending-mta-ip,omitempty"`
	Host        string `json:"receiving-mx-hostname,omitempty"`
	Hello       string `json:"receiving-mx-helo,omitempty"`
	ReceivingIP string `json:"receiving-ip,omitempty"`
	Sessions    int64  `json:"failed-session-count"`
	Information string `json:"additional-information,omitempty"`
	Reason      string `json:"failure-reason-code,omitempty"`
}

// JSON returns the report as JSON. The field mx-host is always a list, as erratum 6241 of RFC 8460 demands.
func (r *Report) JSON() ([]byte, error) {
	w := wireReport{Organization: r.Organization, Contact: r.Contact, ID: r.ID, Policies: []wirePolicy{},
		Range: wireRange{r.Begin.UTC().Format(time.RFC3339), r.End.UTC().Format(time.RFC3339)}}
	for _, p := range r.Policies {
		var x wirePolicy
		x.Policy.Type, x.Policy.Strings, x.Policy.Domain, x.Policy.MX = p.Policy.Type, p.Policy.Strings, p.Policy.Domain,
			p.Policy.MX
		x.Summary.Successful, x.Summary.Failed = p.Successful, p.Failed
		for _, f := range p.Failures {
			x.Failures = append(x.Failures, wireFailure(f))
		}
		w.Policies = append(w.Policies, x)
	}
	text, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("encode a TLS report: %w", err)
	}
	return text, nil
}

// Gzip returns the report as JSON that is compressed by gzip.
func (r *Report) Gzip() ([]byte, error) {
	text, err := r.JSON()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err = w.Write(text)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("compress a TLS report: %w", err)
	}
	return b.Bytes(), nil
}

// FileName returns the name of the file with a compressed report (RFC 8460 section 5.1). The id may be "".
func FileName(submitter, domain string, begin, end time.Time, id string) string {
	name := fmt.Sprintf("%s!%s!%d!%d", submitter, domain, begin.Unix(), end.Unix())
	if id != "" {
		name += "!" + strings.Map(func(r rune) rune {
			if r <= ' ' || r >= 0x7f || strings.ContainsRune(`!/\"<>:|?*`, r) {
				return '_'
			}
			return r
		}, id)
	}
	return name + ".json.gz"
}

// Subject returns the subject of the email with a report (RFC 8460 section 5.3).
func Subject(submitter, domain, id string) string {
	return "Report Domain: " + domain + " Submitter: " + submitter + " Report-ID: <" + id + ">"
}
