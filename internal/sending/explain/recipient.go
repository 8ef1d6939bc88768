package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// history is what is known about one recipient.
type history struct {
	to       To
	happened []events.Entry // the recipient's events and those of the whole email
	tries    []int          // the indexes of its attempts
	last     *Try           // its last attempt, or nil
	final    *events.Entry  // the event that ended the delivery, or nil
	returned *events.Entry  // a bounce after the delivery, or nil
}

// finals are the events that end the delivery to a recipient.
var finals = []string{"delivered", "bounced", "failed", "suppressed", "canceled"}

func (f *Facts) history(to To) (h history) {
	h.to = to
	for _, e := range f.Events {
		if e.Recipient == "" || strings.EqualFold(e.Recipient, to.Address) {
			h.happened = append(h.happened, e)
		}
	}
	for i := range f.Attempts {
		t := &f.Attempts[i]
		if slices.ContainsFunc(t.Recipients, func(a string) bool { return strings.EqualFold(a, to.Address) }) {
			h.tries, h.last = append(h.tries, i), t
		}
	}
	if !settled(to.State) {
		return h
	}
	for i := range h.happened {
		switch e := &h.happened[i]; {
		case h.final == nil && slices.Contains(finals, e.Type):
			h.final = e
		case h.final != nil && h.final.Type == "delivered" && e.Type == "bounced":
			h.returned = e
		}
	}
	return h
}

// ended reports whether one of the events ended the delivery.
func (h *history) ended(by ...string) bool {
	return h.final != nil && slices.Contains(by, h.final.Type)
}

// settled reports whether a recipient in the given state gets no more tries.
func settled(state string) bool {
	switch state {
	case "scheduled", "queued", "sent", "delivery_delayed":
		return false
	}
	return true
}

// recipient explains the delivery to one recipient.
func (f *Facts) recipient(to To) RecipientAnswer {
	h := f.history(to)
	r := RecipientAnswer{Address: to.Address, State: to.State, Steps: []string{}}
	end := f.Now
	switch {
	case h.final != nil:
		end = h.final.At
	case settled(to.State) && !to.UpdatedAt.IsZero():
		end = to.UpdatedAt
	}
	if end.Before(f.CreatedAt) {
		end = f.CreatedAt
	}
	if settled(to.State) {
		r.EndedAt = &end
	}
	if r.Intervals = f.intervals(&h, end); r.Intervals == nil {
		r.Intervals = []Interval{}
	}
	r.TotalMS, r.Sums = inMS(end.Sub(f.CreatedAt)), sums(r.Intervals)
	f.judge(&r, &h)
	if r.Advice == "" {
		r.Advice = NothingToDo
	}
	if instead, ok := forwardedAdvice[r.Advice]; ok && f.Forwarded && r.Act != Nobody {
		r.Act, r.Advice = instead.who, instead.advice
	}
	if r.Act != Nobody {
		r.Steps = slices.Clone(r.Advice.Steps())
	}
	return r
}

// verdict sets the verdict, who must act and the advice.
func (r *RecipientAnswer) verdict(text string, who Actor, what Advice) {
	r.Verdict, r.Act, r.Advice = text, who, what
}

// judge sets all fields of the answer that depend on the recipient's state.
func (f *Facts) judge(r *RecipientAnswer, h *history) {
	h.translate(r)
	if f.Paused && (r.State == "queued" || r.State == "delivery_delayed" && h.hold() == nil) {
		r.verdict("The email waits, because its broadcast is paused.", You, ResumeBroadcast)
		r.Next = "Postrider sends it after the broadcast is resumed, and cancels it if the broadcast is canceled."
		return
	}
	if by := f.operatorHold(h); by != nil {
		text := "The email waits, because the operator of this installation has paused mail to " + domainOf(r.Address)
		if by.Reason != "" {
			text += ": " + strings.TrimSuffix(by.Reason, ".")
		}
		r.verdict(text+".", Operator, AskOperator)
		r.Next = "Postrider sends it after the operator has resumed the destination."
		return
	}
	switch r.State {
	case "scheduled":
		r.verdict("The email is scheduled for "+at(f.ScheduledAt)+" and has not been sent.", Nobody, NothingToDo)
		r.setNext(f.ScheduledAt, "It is sent at "+at(f.ScheduledAt)+".")
	case "queued":
		r.verdict("The email waits in the queue since "+at(f.CreatedAt)+". No mail server has been contacted yet.",
			Nobody, Wait)
		r.Next = "Postrider delivers it when its turn comes."
	case "sent":
		r.verdict("The delivery has begun, and no outcome for this recipient is recorded yet.", Nobody, Wait)
		r.Next = "Postrider records the outcome when the recipient's mail server has answered."
	case "delivery_delayed":
		f.delayed(r, h)
	case "delivered", "opened", "clicked", "complained":
		h.delivered(f, r)
	case "bounced":
		h.bounced(f, r)
	case "suppressed":
		h.suppressed(r)
	case "canceled":
		h.canceled(f, r)
	case "failed":
		h.failed(r)
	default:
		r.verdict("The state of this recipient is not known.", Nobody, NothingToDo)
	}
}

// Hold is a pause of a destination by the operator.
type Hold struct {
	Reason string    // why the destination is paused; may be empty
	Since  time.Time // since when it is known to be paused
}

// operatorHold returns the pause for which a recipient's mail waits now, or nil.
func (f *Facts) operatorHold(h *history) *Hold {
	by, held := f.Held[domainOf(h.to.Address)]
	if !held || h.to.State != "queued" && (h.to.State != "delivery_delayed" || h.hold() != nil) {
		return nil
	}
	return &by
}

// domainOf returns the domain of an address in lower case.
func domainOf(address string) string {
	return strings.ToLower(address[strings.LastIndexByte(address, '@')+1:])
}

func (r *RecipientAnswer) setNext(when time.Time, says string) {
	if r.Next = says; !when.IsZero() {
		r.NextAt = &when
	}
}

// translate sets the reply and its meaning.
func (h *history) translate(r *RecipientAnswer) {
	t := h.last
	bounce := h.final
	if h.returned != nil {
		bounce = h.returned
	}
	if bounce != nil && bounce.Type == "bounced" {
		var b events.Bounce
		if json.Unmarshal([]byte(bounce.Data), &b) == nil && len(b.DiagnosticCode) > 0 {
			r.Reply = strings.TrimSpace(strings.TrimPrefix(b.DiagnosticCode[0], "smtp;"))
		}
	}
	if r.Reply == "" && t != nil && h.returned == nil {
		r.Reply = t.replyTo(h.to.Address)
	}
	if r.Reply == "" {
		return
	}
	m := t.meaning(r.Reply, settled(r.State))
	if h.returned != nil { // the report of a bounce says nothing about the stage
		m = Translate(t.provider(), "", r.Reply, false, true)
	}
	r.Meaning = &m
}

// provider returns the provider of the attempt's host, as far as it was recorded.
func (t *Try) provider() evidence.Provider {
	if t == nil || t.Evidence == nil {
		return evidence.NotRecorded
	}
	return t.Evidence.Provider
}

// meaning translates a reply of the attempt. Without evidence, the reply counts as Postrider's own if no host was
// reached.
func (t *Try) meaning(text string, final bool) ReplyMeaning {
	p, stage, local := t.provider(), "", t == nil || t.Host == "" || captured(t) || simulated(t)
	if t != nil && t.Evidence != nil {
		stage, local = t.Evidence.Stage.String(), t.Evidence.Local || captured(t) || simulated(t)
	}
	m := Translate(p, stage, text, local, final)
	if t != nil && t.Evidence != nil && local && p != evidence.Relay {
		m.byRule(t.Evidence.Rule, text)
	}
	if t != nil && t.Evidence != nil && !local && !t.Evidence.Talked() { // the host was not tried; see notTriedText
		m.Class, m.Says = OwnLimit, notTriedText+" The answer then: "+m.Says
	}
	return m
}

// notTriedText explains an attempt that contacted no host, because the host had failed shortly before.
var notTriedText = consequences[OwnLimit].says

// replyTo returns the reply that decided for one recipient, or "" if it was not recorded for this recipient alone.
func (t *Try) replyTo(address string) string {
	if t.Outcome != "mixed" || len(t.Recipients) == 1 {
		return t.Reply
	}
	return replyFromTranscript(t.Conversation, address)
}

// captured reports whether the outbox of `postrider dev` took the email instead of a host; simulated reports whether
// a test address did. Package delivery has these names.
func captured(t *Try) bool {
	return t.Host == events.OutboxHost && t.ownReply() && strings.Contains(t.Reply, " captured as ")
}

func simulated(t *Try) bool {
	return t.Host == "test addresses" && t.ownReply() && strings.Contains(t.Reply, "simulated")
}

// ownReply reports whether Postrider may have written the reply of the attempt.
func (t *Try) ownReply() bool { return t.Evidence == nil || t.Evidence.Local }

// hostName returns how a sentence names the host of the last attempt.
func (h *history) hostName() string {
	if h.last == nil {
		return evidence.Other.Name()
	}
	if p := h.last.provider(); p != evidence.NotRecorded && p != evidence.Other {
		if p == evidence.Relay {
			return "The relay"
		}
		return p.Name() + "'s mail server"
	}
	return evidence.Other.Name()
}

// seen says what happened to an email after its delivery, by the recipient's state.
var seen = map[string]string{
	"opened":  " It was opened, by a person or by a program.",
	"clicked": " A link in it was followed, by a person or by a program.",
}

func (h *history) delivered(f *Facts, r *RecipientAnswer) {
	took := ""
	if h.final != nil {
		took = " " + length(h.final.At.Sub(f.CreatedAt)) + " after it was accepted here"
	}
	switch {
	case h.last == nil:
		r.verdict("The email was delivered. How it was delivered is not recorded.", Nobody, NothingToDo)
	case captured(h.last):
		r.verdict("The email was captured by this installation's outbox. It was not sent, and no mail server has "+
			"seen it, unless somebody released it from the outbox since then.", Nobody, NothingToDo)
		r.Verdict += seen[r.State]
		return
	case simulated(h.last):
		r.verdict("The address is a test address, whose delivery Postrider simulates. No mail server has seen the "+
			"email.", Nobody, NothingToDo)
		if r.State == "complained" {
			r.Verdict += " The complaint is simulated too."
		}
		return
	case h.last.provider() == evidence.Relay:
		r.verdict("The relay accepted the email"+took+". Whether the recipient's mail server has it is not known "+
			"here.",
			Nobody, NothingToDo)
	default:
		r.verdict(h.hostName()+" accepted the email"+took+". The folder into which it was put is not known.", Nobody,
			NothingToDo)
	}
	if r.Verdict += seen[r.State]; r.State == "complained" {
		r.verdict("The email was delivered, and the recipient reported it as spam. The address is suppressed "+
			"now.", You, RespectChoice)
	}
}

func (h *history) bounced(f *Facts, r *RecipientAnswer) {
	if r.Meaning == nil {
		r.verdict("The email bounced. The reply is not recorded.", You, CheckAddress)
		return
	}
	m, took := r.Meaning, length(r.EndedAt.Sub(f.CreatedAt))
	switch {
	case m.Class == Simulated || h.last != nil && simulated(h.last):
		r.verdict("The address is a test address, whose bounce Postrider simulates. No mail server has seen the "+
			"email.",
			Nobody, NothingToDo)
		return
	case h.returned != nil:
		r.Verdict = h.hostName() + " accepted the email and returned it later. " + m.Says
	case m.Temporary:
		r.Verdict = fmt.Sprintf("The email could not be delivered in %s and %s. %s",
			took,
			counted(len(h.tries), "attempt"), m.Says)
	case h.last != nil && h.last.Evidence != nil && h.last.Evidence.Local:
		r.Verdict = "The email cannot be delivered. " + m.Says
	default:
		r.Verdict = h.hostName() + " refused the email for good. " + m.Says
	}
	r.Act, r.Advice = m.Act, m.Advice
	r.Next = "Postrider does not try again."
}

func (f *Facts) delayed(r *RecipientAnswer, h *history) {
	if hold := h.hold(); hold != nil {
		until := hold.At.Add(24 * time.Hour)
		if hold.Reason == withheld {
			r.verdict("The email waits, because its sender's domain may not send at present.", DomainOwner,
				VerifyDomain)
			r.Next = "Postrider sends it when the domain is verified again. About a day after the email was due, " +
				"it fails: " +
				"at the latest at " + at(until) + "."
			return
		}
		r.verdict("The email waits. "+hold.Says, Operator, AskOperator)
		r.Next = "Postrider tries again every half minute."
		return
	}
	t := h.last
	if t == nil || r.Meaning == nil {
		r.verdict("The email is delayed. The cause is not recorded.", Nobody, Wait)
		r.Next = "Postrider tries again. The time is not recorded."
		return
	}
	who := h.hostName() + " deferred the email. "
	if t.Evidence != nil && t.Evidence.Local || t.Evidence == nil && t.Host == "" {
		who = "The email could not be delivered yet. "
	}
	r.verdict(who+r.Meaning.Says, r.Meaning.Act, r.Meaning.Advice)
	switch {
	case t.NextAt.IsZero():
		r.Next = "Postrider tries again. The time is not recorded."
	case t.NextAt.After(f.Now):
		r.setNext(t.NextAt, "Postrider tries again at "+at(t.NextAt)+".")
	default:
		r.setNext(t.NextAt, "The next try was due at "+at(t.NextAt)+", and waits for its turn.")
	}
}

// held is an event that says why an email is withheld.
type held struct {
	At     time.Time
	Reason Reason
	Says   string
}

// hold returns the event for which the email is withheld now, or nil.
func (h *history) hold() *held {
	for _, e := range slices.Backward(h.happened) {
		if e.Type != "delivery_delayed" {
			continue
		}
		var why events.Delayed
		if h.last != nil && h.last.StartedAt.After(e.At) || e.Data == "" || json.Unmarshal([]byte(e.Data),
			&why) != nil ||
			why.Reason == "" {
			return nil
		}
		x := &held{e.At, fileMissing, why.Message}
		if why.Reason == string(withheld) {
			x.Reason = withheld
		}
		return x
	}
	return nil
}

func (h *history) suppressed(r *RecipientAnswer) {
	why := events.Suppressed{Message: "The address is on the team's suppression list."}
	if h.final != nil {
		json.Unmarshal([]byte(h.final.Data), &why)
	}
	if h.last != nil && simulated(h.last) {
		r.verdict("The address is a test address, which behaves like a suppressed one. No mail server has seen "+
			"the email.",
			Nobody, NothingToDo)
		return
	}
	r.verdict("The email was not sent to this recipient. "+why.Message, You, LiftSuppression)
	r.Next = "Postrider does not try again."
}

func (h *history) canceled(f *Facts, r *RecipientAnswer) {
	var why events.Canceled
	if h.final != nil && h.final.Data != "" {
		json.Unmarshal([]byte(h.final.Data), &why)
	}
	text := "The email was canceled before it was sent."
	switch {
	case why.Reason == "contact_deleted":
		text = "The email was canceled, because its contact was deleted."
	case f.Broadcast:
		text = "The email was canceled together with its broadcast, before it was sent."
	case h.last != nil:
		text = "The email was canceled after " + counted(len(h.tries), "attempt") + " that did not deliver it."
	}
	r.verdict(text, Nobody, NothingToDo)
	r.Next = "Postrider does not send it."
}

// failures explains the reasons of failed emails that have no message of their own.
var failures = map[string]struct {
	says   string
	who    Actor
	advice Advice
}{
	"domain_not_verified":     {"The sender's domain could not send for a day.", DomainOwner, VerifyDomain},
	"account_suspended":       {"The team is suspended.", Operator, AskOperator},
	"app_not_allowed":         {"The connected app that sent it may no longer send.", You, SendAgain},
	"app_limit_exceeded":      {"The daily limit of the connected app that sent it is used up.", You, SendAgain},
	"invalid_api_key":         {"The API key or user that scheduled it may no longer send.", You, SendAgain},
	"content_missing":         {"Its content is missing in the database.", Operator, AskOperator},
	"invalid_message":         {"The message cannot be composed or signed.", You, SendAgain},
	"topic_opted_out":         {"The contact opted out of the topic.", Nobody, RespectChoice},
	"topic_not_opted_in":      {"The contact did not opt in to the topic.", Nobody, RespectChoice},
	"contact_unsubscribed":    {"The contact is unsubscribed from everything.", Nobody, RespectChoice},
	"topic_deleted":           {"The topic was deleted.", You, SendAgain},
	"attachment_fetch_failed": {"An attachment could not be downloaded from its address.", You, SendAgain},
	"reached_daily_quota": {"The team had used up its quota of emails for the day when the email was due.", You,
		WaitForQuota},
	"reached_monthly_quota": {"The team had used up its quota of emails for the month when the email was due.", You,
		WaitForQuota},
}

func (h *history) failed(r *RecipientAnswer) {
	var why events.Failed
	if h.final != nil && h.final.Data != "" {
		json.Unmarshal([]byte(h.final.Data), &why)
	}
	known, ok := failures[why.Reason]
	switch {
	case why.Message != "":
		r.verdict("The email could not be sent. "+why.Message, You, SendAgain)
	case ok:
		r.verdict("The email was not sent. "+known.says, known.who, known.advice)
	case why.Reason != "":
		r.verdict("The email could not be sent, for the reason "+why.Reason+".", You, SendAgain)
	default:
		r.verdict("The email could not be sent. The reason is not recorded.", You, SendAgain)
	}
	r.Next = "Postrider does not try again."
}
