package report

import (
	"slices"
	"strings"
	"sync"
)

// Returned is a message that arrived at a return path.
type Returned struct {
	m           *mail
	fields      Report // the report in the message's fields; its Kind is None if there is no such report
	said, lower string // the message's own text; lower is the subject plus said, in lower case
}

// ReadReturned parses a message that arrived at one or more return paths. The parameter from is the envelope sender,
// which is empty for messages from mail systems. The return paths may belong to different emails; one call to
// ReadReturned is enough for all of them.
func ReadReturned(raw []byte, from string) *Returned {
	m := read(raw)
	m.null = from == ""
	if r, ok := m.complaint(); ok {
		return &Returned{m: m, fields: r}
	}
	if r, ok := m.fields(); ok && len(r.Recipients) > 0 {
		m.readOriginal(&r)
		m.explain(&r)
		return &Returned{m: m, fields: r}
	}
	r := &Returned{m: m, said: m.passage()}
	m.readOriginal(&r.fields)
	r.lower = strings.ToLower(m.Subject + "\n" + r.said)
	return r
}

// About returns the report for one of the return paths. The return path proves that the report is about an email to the
// given recipients.
//
// Normally, only reports arrive at a return path. Therefore, a message is a bounce if a mail system sent it or its text
// reports a failure, unless it is a reply, a delay notice or a confirmation. A bounce is about the recipients that it
// names. A bounce that names no recipient is about all recipients, and suppresses an address only if the email had a
// single recipient.
func (r *Returned) About(to []string) Report {
	if r.fields.Kind != None {
		return r.fields
	}
	kind, action := r.m.outcome(r.lower, to)
	if kind != Delivery {
		return Report{Kind: kind}
	}
	found := r.fields
	found.Kind = Delivery
	if action != Failed && action != Delayed {
		return found // A delivery confirmation names no failed recipient.
	}
	found.Recipients = r.m.failedRecipients(&found, r.said, to, action)
	return found
}

// outcome uses the text of a message without report fields to determine its kind and action.
func (m *mail) outcome(lower string, to []string) (Kind, string) {
	daemon, unattended := m.byDaemon() || m.null && m.field("From") == "", m.unattended()
	fails := first(lower, failures) >= 0 || first(lower, moreFailures) >= 0
	reason := refusalIn(lower) || namesCause(lower)
	subject := strings.ToLower(strings.TrimSpace(m.Subject))
	automatic := m.null || m.autoSubmitted()
	// Mail systems do not use the failed recipient's address as the From address of a bounce.
	own := !daemon && !unattended && len(newNames(to).in(m.field("From"))) > 0
	switch {
	case len(m.Header) == 0 && strings.TrimSpace(lower) == "":
		return None, ""
	case m.isReport("disposition-notification") || begins(subject, receipts):
		return AutoReply, ""
	case !daemon && m.away():
		return AutoReply, ""
	case !automatic && !daemon && !unattended && (own || answersSomebody(subject) || m.field("List-Unsubscribe") != ""):
		return None, "" // The message is a person's reply or forwarded message, or it is not about one of our emails.
	case (own || first(lower, asks) >= 0) && !fails && !reason:
		return AutoReply, ""
	case first(lower, finals) < 0 && (first(lower, delays) >= 0 || first(lower, moreDelays) >= 0):
		if daemon || unattended || automatic {
			return Delivery, Delayed
		}
		return None, ""
	case first(lower, confirmations) >= 0 && !fails && !reason:
		return Delivery, Delivered
	case !daemon && !fails && !reason && (!unattended && m.auto() || first(lower, answers) >= 0):
		return AutoReply, ""
	case daemon || unattended || automatic || fails && !m.auto():
		return Delivery, Failed
	}
	return None, ""
}

// refusalIn reports whether a line contains a reply code and an enhanced status code. A single number at the start of a
// line is not enough, because it may be a street number or a telephone number.
func refusalIn(words string) bool {
	for line := range strings.Lines(words) {
		if code, enhanced, _ := splitReply(line[:min(len(line), 1000)]); code != 0 && enhanced != "" {
			return true
		}
	}
	return false
}

// namesCause reports whether a text says why a message cannot be delivered. Phrases about policies, spam, viruses and
// technical problems are ignored, because people also use them in replies.
func namesCause(lower string) bool {
	return slices.ContainsFunc(plain, func(r textRule) bool {
		switch r.is {
		case policy, content, attachment, trouble, rate:
			return false
		}
		return first(lower, r.when) >= 0
	})
}

// unattended reports whether the From address is a no-reply address.
func (m *mail) unattended() bool {
	from := strings.ToLower(m.field("From"))
	return first(from, []string{"no-reply@", "noreply@", "donotreply@"}) >= 0
}

// away reports whether the header says that a program is answering on behalf of a person.
func (m *mail) away() bool {
	for _, name := range vacationFields {
		if value := strings.ToLower(m.field(name)); value != "" && value != "no" && value != "none" {
			return true
		}
	}
	precedence := strings.ToLower(m.field("Precedence"))
	return strings.HasPrefix(precedence, "auto") || strings.EqualFold(m.field("X-Precedence"), "auto_reply") ||
		saysAway(m.Subject) && (m.null || m.auto())
}

func begins(s string, starts []string) bool {
	return slices.ContainsFunc(starts, func(start string) bool { return strings.HasPrefix(s, start) })
}

// These constants limit how much text is searched for the recipients and the cause of a failure. The limits apply to
// the bytes of the whole text, the bytes and paragraphs of the text about one recipient, and the number of recipients.
const (
	maxPassage    = 16 << 10
	maxSection    = 8 << 10
	maxParagraphs = 30
	maxExplained  = 50 // maximum number of recipients whose details are looked up in the text
)

// passage returns the message's own text from all of its text parts, without quotations.
func (m *mail) passage() string {
	var b strings.Builder
	add := func(text string) {
		text = beforeCopy(text[:min(len(text), maxPassage)])
		for line := range strings.Lines(text) {
			trimmed := strings.TrimSpace(line)
			if strings.HasPrefix(trimmed, ">") && !strings.HasPrefix(trimmed, ">>>") {
				continue
			}
			b.WriteString(strings.TrimRight(line, "\r\n") + "\n")
		}
		b.WriteByte('\n')
	}
	add(m.text)
	for _, f := range m.Files {
		if strings.HasPrefix(f.ContentType, "text/plain") && b.Len() < maxPassage {
			add(strings.ToValidUTF8(string(f.Content[:min(len(f.Content), maxPassage)]), ""))
		}
	}
	s := b.String()
	return strings.ToValidUTF8(s[:min(len(s), maxPassage)], "")
}

// failedRecipients returns the recipients for whom delivery failed, with the text about each of them.
func (m *mail) failedRecipients(r *Report, said string, to []string, action string) []Recipient {
	named := newNames(to)
	sections, found := named.sections(said)
	if ok := named.confirmed(said); len(ok) > 0 && len(ok) < len(found) {
		found = slices.DeleteFunc(found, func(address string) bool { return slices.Contains(ok, address) })
	}
	if len(found) == 0 {
		found = m.namedElsewhere(r, named)
	}
	if len(found) == 0 {
		if others := m.others(said, action); len(others) > 0 && len(to) != 1 {
			return others // The report is about a recipient that this email was not sent to.
		}
	}
	all := make([]Recipient, 0, min(len(to), maxRecipients))
	reasons := map[string]string{} // results by section; a section about several recipients is searched only once
	ofAll := sync.OnceValue(func() string { return m.reason(said, nil) })
	nobody := len(found) == 0
	if nobody {
		found = to
	}
	for _, address := range found[:min(len(found), maxRecipients)] {
		own := sections[address]
		if len(found) == 1 || own == "" {
			own = said
		}
		if _, known := reasons[own]; !known {
			reasons[own] = m.reason(own, ofAll)
		}
		one := Recipient{Final: address, Action: action, Diagnostic: reasons[own]}
		one.Unnamed = nobody && len(to) > 1
		if named, rest := leadingAddress(one.Diagnostic); rest != "" && strings.EqualFold(named, address) {
			one.Diagnostic = rest
		}
		if _, enhanced, _ := splitReply(one.Diagnostic); enhanced != "" {
			one.Status = enhanced
		}
		all = append(all, one)
	}
	return all
}

// namedElsewhere returns the recipients that are named only in the report's header or in the copy of the reported
// message.
func (m *mail) namedElsewhere(r *Report, named names) []string {
	failed := m.field("X-Failed-Recipients")
	if found := named.in(failed[:min(len(failed), maxPassage)]); len(found) > 0 {
		return found
	}
	var found []string
	left := maxPassage // bytes
	look := func(value string) {
		value = value[:min(len(value), left)]
		left -= len(value)
		found = append(found, named.in(value)...)
	}
	for _, f := range r.Original {
		switch strings.ToLower(f.Name) {
		case "delivered-to", "x-original-to", "envelope-to", "x-envelope-to", "x-rcpt-to", "x-failed-recipients":
			look(f.Value)
		case "received":
			if _, after, ok := strings.Cut(f.Value, " for "); ok {
				look(after[:min(len(after), 400)])
			}
		}
	}
	if len(found) > 0 {
		slices.Sort(found)
		return slices.Compact(found)
	}
	var rest string
	if whole := m.text[:min(len(m.text), maxPassage)]; len(r.Original) == 0 {
		rest = whole[len(beforeCopy(whole)):]
	}
	if found = named.in(rest); len(found) == 1 {
		return found
	}
	found, left = nil, maxPassage
	for _, f := range r.Original {
		if strings.EqualFold(f.Name, "To") || strings.EqualFold(f.Name, "Cc") {
			look(f.Value)
		}
	}
	if len(found) == 1 {
		return found
	}
	return nil
}

// others returns the recipients that a report names even though the email was not sent to them.
func (m *mail) others(said, action string) []Recipient {
	var r Report
	r.readLines(said, action)
	return r.Recipients
}

// reason returns the most specific paragraph of a recipient's section. A paragraph with a code is more specific than
// one with only words, and an unambiguous phrase is more specific than other words. If no paragraph is specific, reason
// returns the result of the function all, which is the reason that applies to all recipients. The function may be nil.
func (m *mail) reason(own string, all func() string) string {
	var paragraphs []string
	for block := range blocks(own[:min(len(own), maxSection)]) {
		paragraphs = append(paragraphs, oneLine(block))
		if len(paragraphs) == maxParagraphs {
			break
		}
	}
	coded := ""
	for _, p := range paragraphs {
		if replyIn(p) == "" && !leadsCoded(p) {
			continue
		}
		if coded == "" {
			coded = p
		}
		if (Recipient{Action: Failed, Diagnostic: p}).Class() != unclear {
			return p
		}
	}
	paragraphs = append(paragraphs, oneLine(m.Subject))
	most, plainly := match(plain, strings.ToLower(strings.Join(paragraphs, "\n")))
	for _, p := range paragraphs {
		lower := strings.ToLower(p)
		if c, ok := match(plain, lower); ok && c == most || !plainly && first(lower, expiries) >= 0 {
			return p
		}
	}
	for _, p := range paragraphs {
		c := (Recipient{Action: Failed, Diagnostic: p}).Class()
		if c != unclear && (!c.Suppress && c != trouble || leadsWithAddress(p)) {
			return p
		}
	}
	if all != nil {
		return all()
	}
	if coded != "" || len(paragraphs) == 0 {
		return coded
	}
	return paragraphs[0]
}

// leadsWithAddress reports whether a paragraph has the form `<user@example.com>: reason`, in which qmail and Postfix
// state the reason for one recipient.
func leadsWithAddress(p string) bool {
	inside, reason, ok := strings.Cut(strings.TrimPrefix(p, "<"), ">:")
	return strings.HasPrefix(p, "<") && ok && reason != "" && bareAddress(inside) != ""
}

// leadsCoded reports whether a paragraph contains a reply code or an enhanced status code.
func leadsCoded(p string) bool {
	code, enhanced, _ := splitReply(p)
	return code != 0 || enhanced != ""
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s[:min(len(s), longestRefusal)]), " ")
	return strings.ToValidUTF8(s[:min(len(s), 1000)], "")
}

// explain finds causes in the report's text for failed recipients whose fields specify no cause. explain looks for
// causes for at most maxExplained recipients, the maximum number that one email can have.
func (m *mail) explain(r *Report) {
	said, left := "", maxExplained
	for i := range r.Recipients {
		one := &r.Recipients[i]
		if one.Action != Failed {
			continue
		}
		if left--; left < 0 {
			return
		}
		if one.Class() != unclear {
			continue
		}
		if said == "" {
			if said = m.passage(); strings.TrimSpace(said) == "" {
				return
			}
		}
		own := said
		if len(r.Recipients) > 1 {
			sections, _ := newNames([]string{one.Final, one.Original}).sections(said)
			if own = sections[one.Final]; own == "" {
				continue
			}
		}
		better := *one
		if better.Diagnostic = m.reason(own, nil); better.Class() != unclear {
			*one = better
		}
	}
}
