package receiving

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/mail/report"
)

// outcome is what a report says of one recipient of an email.
type outcome struct {
	email   *emails.Reported
	address string
	typ     events.Type
	data    any
}

// reported are the emails that outcomes are of.
func reported(all []outcome) (list []*emails.Reported) {
	for _, o := range all {
		if !slices.ContainsFunc(list, func(e *emails.Reported) bool { return e.ID == o.email.ID }) {
			list = append(list, o.email)
		}
	}
	return list
}

// addressesIn are the recipients of one of the emails.
func addressesIn(all []outcome, emailID string) (list []string) {
	for _, o := range all {
		if o.email.ID == emailID && !slices.Contains(list, o.address) {
			list = append(list, o.address)
		}
	}
	return list
}

// told reads what a message reports, if it came where reports come. rest are the places at which it is a received email: what comes
// to an address for complaints and is none of ours is for the operator.
func (s *Service) told(ctx context.Context, m *incoming) (all []outcome, rest []place, err error) {
	rest = slices.DeleteFunc(slices.Clone(m.to), func(p place) bool { return p.report != nil || p.feedback })
	if len(rest) == len(m.to) {
		return nil, rest, nil
	}
	r := s.readReport(m)
	for _, p := range m.to {
		var found []outcome
		switch {
		case p.report != nil:
			if found = s.atReturnPath(m, p, &r); len(found) == 0 {
				s.p.Log.Info("nothing to record from a message to a return path", "id", m.id, "email_id", p.report.ID, "kind", r.Kind,
					"from", m.origin.MailFrom, "subject", bounded(m.parsed.Subject, 200))
			}
		case p.feedback:
			if found, err = s.atFeedback(ctx, m, &r); err != nil {
				return nil, nil, err
			}
			if len(found) == 0 {
				rest = append(rest, p)
			}
		}
		all = append(all, found...)
	}
	return all, rest, nil
}

// readReport reads a message as a report. Should our reading ever fail on one, it is none.
func (s *Service) readReport(m *incoming) (r report.Report) {
	s.guard(m.id, func() { r = report.Read(m.body()) })
	return r
}

// atReturnPath is what a message to an email's return path says of the email's recipients.
func (s *Service) atReturnPath(m *incoming, p place, r *report.Report) (all []outcome) {
	near := s.destined(p)
	switch r.Kind {
	case report.Complaint:
		return s.complaint(p.report, near, r)
	case report.Delivery:
	default:
		return nil
	}
	for i := range r.Recipients {
		to := &r.Recipients[i]
		address := match(p.report, near, to.Original, to.Final)
		if address == "" {
			s.p.Log.Info("a report is about somebody whom the email was not sent to", "id", m.id, "email_id", p.report.ID,
				"recipient", bounded(to.Final, 320))
			continue
		}
		o := outcome{email: p.report, address: address}
		switch strings.ToLower(to.Action) {
		case "failed":
			o.typ, o.data = events.EmailBounced, bounce(to)
		case "delayed":
			o.typ = events.EmailDelayed
		default:
			continue // delivered, relayed, expanded: nothing that was not taken for granted
		}
		if !slices.ContainsFunc(all, func(x outcome) bool { return x.address == address && x.typ == o.typ }) {
			all = append(all, o)
		}
	}
	return all
}

// destined are the recipients at the destination whose return path this is.
func (s *Service) destined(p place) (near []string) {
	for _, to := range p.report.To {
		if emails.ReturnPath(s.p.Keys, p.report.ID, to.Domain) == p.local {
			near = append(near, to.Address)
		}
	}
	return near
}

// match finds a recipient by what a report calls it; when only one can be meant it is that one, whatever it is called.
func match(e *emails.Reported, near []string, names ...string) string {
	for _, name := range names {
		if name == "" {
			continue
		}
		for _, to := range e.To {
			if strings.EqualFold(to.Address, name) {
				return to.Address
			}
		}
	}
	if len(near) == 1 {
		return near[0]
	}
	return ""
}

// complaint is what an abuse report says of an email. Reports that a message is no spam, or about how it was authenticated, say nothing
// of the recipient's will. Whom the message was written to does not count: another of its recipients may be who complains.
func (s *Service) complaint(e *emails.Reported, near []string, r *report.Report) []outcome {
	switch strings.ToLower(r.Feedback) {
	case "not-spam", "auth-failure", "dmarc", "dkim", "spf":
		return nil
	}
	var names []string
	for _, to := range r.Recipients {
		names = append(names, to.Original, to.Final)
	}
	address := match(e, near, names...)
	if address == "" {
		return nil
	}
	return []outcome{{e, address, events.EmailComplained, &events.Complaint{}}}
}

// atFeedback is what a message to an address for complaints says of an email: one whose return path stands in the report, or else
// one that has the Message-ID.
func (s *Service) atFeedback(ctx context.Context, m *incoming, r *report.Report) ([]outcome, error) {
	if r.Kind != report.Complaint {
		return nil, nil
	}
	for _, local := range returnPaths(m.body()) {
		emailID, ok := emails.ParseReturnPath(s.p.Keys, local)
		if !ok {
			continue
		}
		e, err := s.p.Emails.Reported(ctx, emailID)
		if err == nil {
			return s.complaint(&e, s.destined(place{report: &e, local: local}), r), nil
		}
		if missing(err) != unknown {
			return nil, err
		}
	}
	emailID, ok := emails.FromMessageID(r.MessageID)
	if !ok {
		return nil, nil
	}
	e, err := s.p.Emails.Reported(ctx, emailID)
	switch {
	case err != nil && missing(err) != unknown:
		return nil, err
	case err != nil:
		return nil, nil
	}
	var near []string
	if len(e.To) == 1 {
		near = []string{e.To[0].Address}
	}
	return s.complaint(&e, near, r), nil
}

// returnPath is how a return path may stand in a text, in any case: 42 characters of base32.
var returnPath = regexp.MustCompile(`(?i)\bb-[a-z2-7]{42}\b`)

// returnPaths are the texts at the beginning of a report that may be return paths of ours; the signature tells which are.
func returnPaths(raw []byte) (all []string) {
	const enough, beginning = 10, 1 << 20
	raw = raw[:min(len(raw), beginning)]
	for _, at := range returnPath.FindAllIndex(raw, enough) {
		if text := strings.ToLower(string(raw[at[0]:at[1]])); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}
