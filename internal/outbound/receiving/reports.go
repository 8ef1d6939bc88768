package receiving

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/report"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// outcome is the event that a report causes for one recipient.
type outcome struct {
	email   *emails.BounceTarget
	address string
	typ     events.Type
	data    any
}

// reportedEmails returns the emails that the given outcomes concern, without duplicates.
func reportedEmails(all []outcome) (list []*emails.BounceTarget) {
	for _, o := range all {
		if !slices.ContainsFunc(list, func(e *emails.BounceTarget) bool { return e.ID == o.email.ID }) {
			list = append(list, o.email)
		}
	}
	return list
}

// addressesIn returns the recipients in the outcomes for one email, without duplicates.
func addressesIn(all []outcome, emailID string) (list []string) {
	for _, o := range all {
		if o.email.ID == emailID && !slices.Contains(list, o.address) {
			list = append(list, o.address)
		}
	}
	return list
}

// outcomes returns the outcomes of a message that was sent to return paths or complaint addresses. The targets that
// receive the message as an email are returned too; they include complaint addresses if the message is not a valid
// complaint.
func (s *Service) outcomes(ctx context.Context, m *incoming) (all []outcome, rest []target, err error) {
	rest = slices.DeleteFunc(slices.Clone(m.to), func(p target) bool { return !p.isEmail() || p.feedback })
	if len(rest) == len(m.to) {
		return nil, rest, nil
	}
	read := sync.OnceValue(func() *report.Returned { return report.ReadReturned(m.body(), m.origin.MailFrom) })
	for _, p := range m.to {
		var found []outcome
		switch {
		case p.report != nil:
			near := s.recipientsAt(p)
			r := s.readReport(m, func() report.Report { return read().About(near) })
			if found = s.atReturnPath(m, p, near, &r); len(found) == 0 {
				s.p.Log.Info("message to a return path has no outcome", "id", m.id, "email_id", p.report.ID, "kind",
					r.Kind,
					"from", m.origin.MailFrom, "subject", db.Text(m.parsed.Subject, 200))
			}
		case p.feedback:
			r := s.readReport(m, func() report.Report { return report.ReadComplaint(m.body()) })
			if found, err = s.atFeedback(ctx, m, &r); err != nil {
				return nil, nil, err
			}
			if len(found) == 0 {
				rest = append(rest, p)
				if r.Kind == report.Complaint {
					s.p.Log.Info("complaint without proof, or about another recipient than it proves, goes to the operator", "id",
						m.id,
						"from", m.origin.MailFrom, "message_id", db.Text(r.MessageID, 200))
				}
			}
		}
		all = append(all, found...)
	}
	return all, rest, nil
}

// readReport parses a message as a bounce or complaint report. If the parser panics, readReport returns an empty
// report, which counts as neither a bounce nor a complaint.
func (s *Service) readReport(m *incoming, read func() report.Report) (r report.Report) {
	s.catchPanic(m.id, func() { r = read() })
	return r
}

// atReturnPath returns the outcomes of a message that was sent to an email's return path. The outcomes concern only
// recipients at the destination for which the return path was created, because only mail to that destination contains
// the return path.
func (s *Service) atReturnPath(m *incoming, p target, near []string, r *report.Report) (all []outcome) {
	switch r.Kind {
	case report.Complaint:
		return complaint(p.report, near, r)
	case report.Delivery:
	default:
		return nil
	}
	// If no recipient in the report is known and the email has only one recipient, an unknown recipient in the report
	// is treated as that recipient.
	exact := slices.ContainsFunc(r.Recipients, func(to report.Recipient) bool {
		return named(near, to.Original,
			to.Final) != ""
	})
	strangers, stranger := 0, ""
	for i := range r.Recipients {
		to := &r.Recipients[i]
		address := named(near, to.Original, to.Final)
		if !exact {
			address = match(near, to.Original, to.Final)
		}
		if address == "" {
			if strangers++; strangers == 1 {
				stranger = to.Final
			}
			continue
		}
		o := outcome{email: p.report, address: address}
		switch to.Action {
		case report.Failed:
			o.typ = events.EmailBounced
		case report.Delayed:
			o.typ = events.EmailDelayed
		default:
			continue // the statuses delivered, relayed and expanded change no state
		}
		if slices.ContainsFunc(all, func(x outcome) bool { return x.address == address && x.typ == o.typ }) {
			continue // Only the first outcome of each type counts.
		}
		if o.typ == events.EmailBounced {
			o.data = bounce(to)
		}
		all = append(all, o)
	}
	if strangers > 0 {
		s.p.Log.Info("report names recipients that its return path does not prove", "id", m.id, "email_id", p.report.ID,
			"recipients", strangers, "first", db.Text(stranger, 320))
	}
	return all
}

// recipientsAt returns the email's recipients at the destination for which the return path was created.
func (s *Service) recipientsAt(p target) (near []string) {
	for _, to := range p.report.To {
		if tokens.ReturnPath(s.p.Keys, p.ref, to.Domain) == p.local {
			near = append(near, to.Address)
		}
	}
	return near
}

// match returns the recipient that has one of the given names. If only one recipient is given, match returns that
// recipient whatever the names are.
func match(near []string, names ...string) string {
	if address := named(near, names...); address != "" || len(near) != 1 {
		return address
	}
	return near[0]
}

// named returns the recipient that has one of the given names, or "".
func named(near []string, names ...string) string {
	for _, name := range names {
		i := slices.IndexFunc(near, func(address string) bool { return strings.EqualFold(address, name) })
		if i >= 0 {
			return near[i]
		}
	}
	return ""
}

// complaint returns the outcome of an abuse report about one of the given recipients. Reports that a message is not
// spam, and reports about authentication, are not complaints. The reported message's To field is ignored, because
// another recipient may have complained.
func complaint(e *emails.BounceTarget, near []string, r *report.Report) []outcome {
	if !r.Complains() {
		return nil
	}
	var names []string
	for _, to := range r.Recipients {
		names = append(names, to.Original, to.Final)
	}
	address := match(near, names...)
	if address == "" {
		return nil
	}
	return []outcome{{e, address, events.EmailComplained, &events.Complaint{}}}
}

// atFeedback returns the outcomes of a message to a complaint address, if the message proves that its sender may report
// complaints. A Message-ID is not a proof, because every participant in a conversation knows it.
//
// The first kind of proof is an email's return path or its [tokens.FeedbackField] value. Return paths and feedback
// tokens are signed and known only at one destination, so a report with one of them may concern only the recipients at
// that destination. The second kind of proof is the signature of a provider on the operator's list, whose report may
// concern all recipients.
func (s *Service) atFeedback(ctx context.Context, m *incoming, r *report.Report) ([]outcome, error) {
	if r.Kind != report.Complaint {
		return nil, nil
	}
	for _, text := range quotedProofs(m.body(), r) {
		e, near, err := s.matchProof(ctx, text)
		if err != nil || e != nil {
			return complaint(e, near, r), err
		}
	}
	emailID, ok := emails.FromMessageID(r.MessageID)
	if !ok || !s.fromProvider(m) {
		return nil, nil
	}
	e, err := s.p.Emails.BounceTarget(ctx, tokens.Ref{EmailID: emailID})
	switch {
	case err != nil && refuseMissing(err) != unknown:
		return nil, err
	case err != nil:
		return nil, nil
	}
	var all []string
	for _, to := range e.To {
		all = append(all, to.Address)
	}
	return complaint(&e, all, r), nil
}

// matchProof returns the email to which a return path or feedback token belongs, and the email's recipients at the
// token's destination. The returned email is nil if the string is neither a return path nor a feedback token.
func (s *Service) matchProof(ctx context.Context, text string) (e *emails.BounceTarget, near []string, err error) {
	made := tokens.ReturnPath
	of, ok := tokens.ParseReturnPath(s.p.Keys, text)
	if !ok {
		made = tokens.Feedback
		of, ok = tokens.ParseFeedback(s.p.Keys, text)
	}
	if !ok {
		return nil, nil, nil
	}
	found, err := s.p.Emails.BounceTarget(ctx, of)
	if err != nil {
		if refuseMissing(err) == unknown {
			err = nil
		}
		return nil, nil, err
	}
	for _, to := range found.To {
		if made(s.p.Keys, of, to.Domain) == text {
			near = append(near, to.Address)
		}
	}
	return &found, near, nil
}

// fromProvider reports whether a message was sent by a provider on the operator's list. The message must have exactly
// one author, whose domain or address is on the operator's list, and a signature by the author's domain.
func (s *Service) fromProvider(m *incoming) bool {
	if m.auth == nil || len(m.parsed.From) != 1 {
		return false
	}
	from := m.parsed.From[0]
	listed := slices.ContainsFunc(s.c.Providers, func(p string) bool {
		return strings.EqualFold(p, from.Domain) || strings.EqualFold(p, from.Addr())
	})
	return listed && slices.ContainsFunc(m.auth.DKIM, func(v authres.Verdict) bool {
		return v.Result == "pass" && strings.EqualFold(v.Domain, from.Domain)
	})
}

// proof matches the local part of a return path, or a feedback token: a prefix followed by 48 base32 characters, in
// upper or lower case.
var proof = regexp.MustCompile(`(?i)\b` + tokens.ProofPattern + `\b`)

// feedbackField is the name of the field with a feedback token, in lower case.
var feedbackField = strings.ToLower(tokens.FeedbackField)

// quotedProofs returns the substrings of a report that look like return paths or feedback tokens, in lower case. The
// search covers the header of the reported message and the beginning of the report. The caller of quotedProofs must
// verify the signatures.
func quotedProofs(raw []byte, r *report.Report) (all []string) {
	const enough, beginning = 10, 1 << 20
	add := func(text []byte) {
		for _, at := range proof.FindAllIndex(text, enough) {
			if found := strings.ToLower(string(text[at[0]:at[1]])); len(all) < 2*enough && !slices.Contains(all, found) {
				all = append(all, found)
			}
		}
	}
	for _, f := range r.Original {
		switch strings.ToLower(f.Name) {
		case feedbackField, "cfbl-feedback-id", "return-path":
			add([]byte(f.Value[:min(len(f.Value), 1000)]))
		}
	}
	add([]byte(r.MailFrom))
	add(raw[:min(len(raw), beginning)])
	return all
}
