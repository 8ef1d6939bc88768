package report

import (
	"strings"

	"github.com/postrider/postrider/internal/mail/mailparse"
)

// complaint parses an abuse report. complaint supports the RFC 5965 format and that of Microsoft's junk mail reporting,
// which attaches the message and names the complainant in a header field.
func (m *mail) complaint() (Report, bool) {
	r := Report{Kind: Complaint}
	for _, f := range m.Files {
		if f.ContentType == "message/feedback-report" {
			r.readFeedback(string(f.Content[:min(len(f.Content), maxText)]))
		}
	}
	if r.Feedback == "" && m.isReport("feedback-report") {
		for block := range blocks(m.text) {
			if strings.Contains(strings.ToLower(block), "feedback-type:") {
				r.readFeedback(block)
			}
		}
		if r.Feedback == "" {
			r.Feedback = "abuse"
		}
	}
	if r.Feedback != "" {
		m.readOriginal(&r)
		if r.MailFrom == "" {
			r.MailFrom = bareAddress(fieldOf(r.Original, "Return-Path"))
		}
		return r, true
	}
	return m.junkReport()
}

// readFeedback parses the fields from RFC 5965 section 3. A report without a feedback type counts as abuse.
func (r *Report) readFeedback(s string) {
	r.Feedback = "abuse"
	for _, f := range mailparse.ParseHeader([]byte(strings.TrimLeft(s, " \t\r\n"))) {
		switch strings.ToLower(f.Name) {
		case "feedback-type":
			word, _, _ := strings.Cut(strings.ToLower(f.Value), ";")
			if word = strings.TrimSpace(word); word != "" && len(word) <= 100 {
				r.Feedback = word
			}
		case "original-rcpt-to", "removal-recipient", "original-recipient":
			a := typedAddress(f.Value)
			if a != "" && len(r.Recipients) < maxRecipients && !r.has(a) {
				r.Recipients = append(r.Recipients, Recipient{Original: a})
			}
		case "original-mail-from":
			if r.MailFrom == "" {
				r.MailFrom = bareAddress(f.Value)
			}
		}
	}
}

func (r *Report) has(address string) bool {
	for _, have := range r.Recipients[:min(len(r.Recipients), 20)] {
		if strings.EqualFold(have.Original, address) {
			return true
		}
	}
	return false
}

func (m *mail) junkReport() (Report, bool) {
	if len(m.From) != 1 {
		return Report{}, false
	}
	switch m.From[0].Domain {
	case "hotmail.com", "outlook.com", "microsoft.com":
	default:
		return Report{}, false
	}
	for _, f := range m.Files {
		if f.ContentType != "message/rfc822" {
			continue
		}
		header := mailparse.ParseHeader(f.Content)
		who := bareAddress(fieldOf(header, "X-HmXmrOriginalRecipient"))
		if who == "" {
			continue
		}
		r := Report{Kind: Complaint, Feedback: "abuse", Recipients: []Recipient{{Original: who}}}
		m.readOriginal(&r)
		return r, true
	}
	return Report{}, false
}
