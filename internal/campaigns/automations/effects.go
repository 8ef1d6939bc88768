package automations

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/render"
)

// prepared is an email that a step may send, together with its mailing or the reason why it cannot be sent.
type prepared struct {
	email     engine.Email
	fields    []string      // the placeholders of contact fields
	contact   render.Values // the values of the fields
	mailing   *emails.Mailing
	failure   *engine.Failure
	suspended bool
	domain    string // the sender's domain, if the team may not send from it at present
}

// prepareEmails prepares the emails that a run's next steps may send. If the run takes another path or its contact
// changes, the email that the run needs may be missing or different. If the prepared email does not fit, the
// transaction ends before the step that sends it, and the email is prepared again before the next transaction.
func (s *Service) prepareEmails(ctx context.Context, at *runState) error {
	at.prepared = map[string]*prepared{}
	if at.contact == nil {
		return nil
	}
	for _, key := range at.version.emails[at.run.At] {
		run := *at.run
		run.At, run.Waits = key, nil
		a, err := at.version.Plan(&run, s.facts(ctx, s.p.DB.Reader, s.p.DB.Now(), at.contact))
		if err != nil {
			return err
		}
		if e, ok := a.Effect.(*engine.Email); ok {
			if at.prepared[key], err = s.prepare(ctx, at.row.teamID, at.contact, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepare prepares a step's email for a contact.
func (s *Service) prepare(ctx context.Context, teamID string, m *contacts.Member, e *engine.Email) (*prepared, error) {
	p := &prepared{email: *e}
	team, err := s.p.Teams.Get(ctx, teamID)
	if err != nil {
		return nil, err
	}
	if p.suspended = team.Suspended; p.suspended {
		return p, nil
	}
	in := emails.ByTemplate{TemplateID: e.TemplateID, Variables: e.Variables, To: m.Address, TopicID: e.TopicID,
		From: e.From, Subject: e.Subject}
	if t, err := s.p.Templates.Published(ctx, teamID, e.TemplateID); err == nil { // MailingByTemplate returns the error
		p.findFields(t.Content)
		p.contact = p.values(m)
		in.Variables, in.Contact = splitVariables(t.Convert(e.Variables), p.contact)
	}
	if e.ReplyTo != "" {
		in.ReplyTo = []string{e.ReplyTo}
	}
	p.mailing, err = s.p.Emails.MailingByTemplate(ctx, teams.System(teamID), in)
	if fault.Ours(err) {
		return nil, err
	}
	if err != nil {
		p.failure = failureOfEmail(err, e)
		p.domain, _ = domains.IsRefusedSender(err)
	}
	return p, nil
}

// findFields finds the placeholders of contact fields in the email's template and in the fields that its step sets.
func (p *prepared) findFields(template *content.Compiled) {
	e := &p.email
	own := content.Compile(&content.Content{From: e.From, Subject: e.Subject, ReplyTo: []string{e.ReplyTo}})
	p.fields = slices.DeleteFunc(append(template.Names(), own.Names()...), func(name string) bool {
		return !render.IsContactField(name)
	})
}

// values returns the contact's values for the fields. The fallback of a placeholder precedes the fallback of the
// contact property, as in broadcasts.
func (p *prepared) values(m *contacts.Member) render.Values {
	values := emails.ContactValues(m, p.fields)
	for _, name := range p.fields {
		if text, ok := values[name]; ok && m.Fallbacks[emails.ContactProperty(name)] {
			values.SetFallback(name, text)
			delete(values, name)
		}
	}
	return values
}

// splitVariables separates variables with the names of contact fields from the others. A variable that the step gives
// replaces the value of the contact.
func splitVariables(all map[string]scalar.Value, contact render.Values) (map[string]scalar.Value, render.Values) {
	contact = maps.Clone(contact)
	for name, v := range all {
		if render.IsContactField(name) {
			delete(all, name)
			contact[name] = v.Text
		}
	}
	return all, contact
}

// failureOfEmail converts the error with which a step's email was refused into a step failure.
func failureOfEmail(err error, e *engine.Email) *engine.Failure {
	return &engine.Failure{Reason: emailReason(err, e), Message: err.Error()}
}

// emailReasons are the reasons for which an email is refused because of a field with an invalid value.
var emailReasons = map[string]string{
	"template.id": "template_not_published",
	"topic_id":    "topic_not_found",
	"to":          "address_refused",
	"from":        "from_invalid",
	"subject":     "subject_invalid",
	"reply_to":    "reply_to_invalid",
	"html":        "content_invalid",
	"text":        "content_invalid",
	"attachments": "email_too_large",
}

func emailReason(err error, e *engine.Email) string {
	field := ""
	if f, ok := errors.AsType[*fault.Error](err); ok {
		field = f.Field
	}
	switch kind := fault.KindOf(err); {
	case kind == fault.NotFound:
		return "template_not_found"
	case errors.Is(err, domains.ErrNotAdded):
		return "domain_not_found"
	case errors.Is(err, domains.ErrNotVerified):
		return "domain_not_verified"
	case errors.Is(err, domains.ErrSendingDisabled):
		return "domain_sending_disabled"
	case kind == fault.Forbidden && field == "to":
		return "recipient_not_allowed"
	case kind == fault.Forbidden:
		return "sender_not_allowed"
	}
	if key, ok := strings.CutPrefix(field, "template.variables."); ok {
		if _, given := e.Variables[key]; given {
			return "variable_unusable"
		}
		return "variable_missing"
	}
	if reason, ok := emailReasons[field]; ok {
		return reason
	}
	return "email_invalid"
}

// do carries out the effect of a step. If do returns stops == true, the step must be continued outside this
// transaction. After a step that changes the contact, do reads the contact again.
func (w *walk) do(ctx context.Context, a *engine.Action) (out engine.Outcome, stops bool, err error) {
	switch e := a.Effect.(type) {
	case *engine.Email:
		return w.email(ctx, a.Step.Key, e)
	case *engine.Call:
		w.end, w.lane = walkCalls, callLane(w.row.teamID, e.URL)
		return out, true, insertStep(ctx, w.tx, &w.row, &engine.Record{Key: a.Step.Key, Type: a.Step.Type,
			Status: engine.StepRunning, Output: a.Output, StartedAt: w.tx.Now()})
	case *engine.Update:
		out, err = w.update(ctx, e)
	case engine.Deletion:
		_, err = w.s.p.Contacts.DeleteIn(withCause(ctx, &w.row), w.tx, w.row.teamID, w.row.contactID)
		if err == nil {
			w.contact, w.row.contactGone = nil, true
			return out, false, nil
		}
	case *engine.Addition:
		out, err = w.addToSegment(ctx, e.SegmentID)
	default:
		return out, false, nil
	}
	if fault.KindOf(err) == fault.NotFound {
		err = errRunChanged // the contact was deleted, which will be noticed when the run is read again
	}
	if err != nil || out.Failure != nil {
		return out, false, err
	}
	m, err := w.s.p.Contacts.MemberIn(ctx, w.tx.Reader, w.row.teamID, w.row.contactID)
	w.contact = &m
	return out, false, err
}

// email enqueues a step's prepared email if the contact may receive it now.
func (w *walk) email(ctx context.Context, key string, e *engine.Email) (out engine.Outcome, stops bool, err error) {
	p := w.ready[key]
	// An earlier step of the same transaction may have changed the contact after the email was prepared.
	if p == nil || !reflect.DeepEqual(p.email, *e) ||
		!maps.Equal(p.contact, p.values(w.contact)) {
		return out, true, nil
	}
	if p.suspended {
		w.end = walkSuspended
		return out, true, nil
	}
	if p.domain != "" {
		return w.awaitDomain(ctx, key, p)
	}
	if out.Failure = p.failure; out.Failure != nil {
		return out, false, nil
	}
	s, teamID, contactID := w.s, w.row.teamID, w.row.contactID
	all, err := s.p.Contacts.AudienceMembers(ctx, w.tx.Reader, teamID, e.TopicID, []string{contactID})
	if err != nil {
		if !fault.Ours(err) {
			out.Failure, err = failureOfEmail(err, e), nil
		}
		return out, false, err
	}
	now, ok := all[contactID]
	switch {
	case !ok:
		return out, false, errRunChanged
	case now.Refused != "":
		out.Skipped = string(now.Refused)
		return out, false, nil
	}
	done, err := s.p.Emails.Enqueue(withCause(ctx, &w.row), w.tx, p.mailing,
		[]emails.MailingRecipient{{Address: now.Address, ContactID: contactID}})
	if quotas.Exceeded(err) {
		w.end, w.quota = walkOverQuota, fault.KindOf(err)
		return out, true, nil
	}
	if err != nil {
		return out, false, err
	}
	if err := done[0].Err; err != nil {
		if fault.Ours(err) {
			return out, false, err
		}
		out.Failure = failureOfEmail(err, e)
		return out, false, nil
	}
	s.p.Contacts.RecordMailed(ctx, w.tx, teamID, []string{contactID})
	out.Output = map[string]any{"email_id": done[0].ID}
	return out, false, nil
}

// update changes the run's contact. The step fails if a contact property no longer exists or a value is not allowed.
func (w *walk) update(ctx context.Context, e *engine.Update) (out engine.Outcome, err error) {
	values, failure, err := w.fitProperties(ctx, e.Properties)
	if out.Failure = failure; err != nil || failure != nil {
		return out, err
	}
	_, err = w.s.p.Contacts.UpdateIn(withCause(ctx, &w.row), w.tx, w.row.teamID, w.row.contactID, contacts.Change{
		FirstName: e.FirstName, LastName: e.LastName, Unsubscribed: e.Unsubscribed, Properties: values})
	if fault.KindOf(err) != fault.Invalid {
		return out, err
	}
	out.Failure = &engine.Failure{Reason: "contact_invalid", Message: err.Error()}
	return out, nil
}

// fitProperties converts the values that a step sets to the types of the team's contact properties.
func (w *walk) fitProperties(ctx context.Context, values map[string]scalar.Value) (map[string]scalar.Value,
	*engine.Failure, error) {
	if len(values) == 0 {
		return nil, nil, nil
	}
	have, err := w.s.p.Contacts.PropertiesNamed(ctx, w.tx.Reader, w.row.teamID, slices.Sorted(maps.Keys(values)))
	if err != nil {
		return nil, nil, err
	}
	fit, failure := engine.FitProperties(values, func(name string) (scalar.Type, bool) {
		i := slices.IndexFunc(have, func(p contacts.Property) bool { return p.Name == name })
		if i < 0 {
			return "", false
		}
		return have[i].Type, true
	})
	return fit, failure, nil
}

// addToSegment adds the run's contact to a segment.
func (w *walk) addToSegment(ctx context.Context, segmentID string) (out engine.Outcome, err error) {
	contacts, teamID, contactID := w.s.p.Contacts, w.row.teamID, w.row.contactID
	_, err = contacts.AddToSegmentIn(withCause(ctx, &w.row), w.tx, teamID, contactID, segmentID)
	switch fault.KindOf(err) {
	case fault.Invalid:
		out.Failure = &engine.Failure{Reason: segmentFiltered, Message: err.Error()}
	case fault.NotFound: // the segment or the contact does not exist
		if _, err := contacts.MemberIn(ctx, w.tx.Reader, teamID, contactID); err != nil {
			return out, err
		}
		out.Failure = segmentGone(segmentID)
	default:
		return out, err
	}
	return out, nil
}

// segmentFiltered is the failure reason for a step that tries to add a contact to a segment that is defined by a
// filter.
const segmentFiltered = "segment_filtered"

func segmentGone(segmentID string) *engine.Failure {
	return &engine.Failure{Reason: "segment_not_found", Message: "The segment " + segmentID + " was deleted. Change " +
		"the step so that it names a segment that there is."}
}
