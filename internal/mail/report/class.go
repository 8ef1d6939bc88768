package report

import "strings"

// Fault is the party at fault for a refusal. It determines who must act, and whether an address may be suppressed.
type Fault string

const (
	Recipients Fault = "recipient" // the address, which its owner or the author of the email can correct
	Ours       Fault = "ours"      // this installation or the sender: reputation, authentication, content, protocol
	Hosts      Fault = "host"      // the receiving side: its rules, its load, its mistakes
)

// Bounce types and subtypes (webhook reference section 2.3).
const (
	Permanent    = "Permanent"
	Transient    = "Transient"
	Undetermined = "Undetermined" // also a subtype

	General            = "General"
	NoEmail            = "NoEmail"
	MailboxFull        = "MailboxFull"
	MessageTooLarge    = "MessageTooLarge"
	ContentRejected    = "ContentRejected"
	AttachmentRejected = "AttachmentRejected"
)

// Class is a class of refusals.
type Class struct {
	Type, SubType string
	Fault         Fault
	Suppress      bool   // the address is permanently unusable
	Throttle      bool   // the host asks for a lower rate, or for a pause
	Say           string // what the refusal means, for people
}

// Greylisted reports whether the host refuses new senders at first, and accepts the mail on a later attempt.
func (c Class) Greylisted() bool { return c.Say == greylist.Say }

// Expired returns the class of a message that could not be delivered in time because of temporary refusals. No refusal
// was permanent, so the address may be valid.
func (c Class) Expired() Class {
	c = c.forNow()
	c.Say = "The message could not be delivered in time; the last answer was this. " + c.Say
	return c
}

// forNow returns the class for a refusal that is not permanent.
func (c Class) forNow() Class {
	c.Type, c.Suppress = Transient, false
	if c.SubType == Undetermined || c.SubType == NoEmail {
		c.SubType = General
	}
	return c
}

// Scope is the subject of a refusal. If a host refuses before it knows the recipient, the refusal says little about the
// recipient.
type Scope uint8

const (
	ScopeRecipient Scope = iota // the refusal is about the recipient, or its subject is unknown
	ScopeMessage                // the refusal is about the message; the host knew the recipient
	ScopeSender                 // the sender
	ScopeSession                // the refusal is about the connection: greeting, TLS, authentication
)

// Refusal is a host's negative reply.
type Refusal struct {
	Code     int    // reply code from 400 to 599; 0 if unknown
	Enhanced string // "5.1.1" (RFC 3463), or empty
	Text     string // the reply without its codes, possibly several lines
	Scope    Scope
	Local    bool // this installation, not the host, refused the email for a known reason
}

// Classify classifies a host's refusal of a recipient. Either code or enhanced may be missing.
func Classify(code int, enhanced, text string) Class {
	return Refusal{Code: code, Enhanced: enhanced, Text: text}.Class()
}

// longestRefusal limits the bytes of a host's text that are searched, because some hundred marks are searched for.
const longestRefusal = 4 << 10

// Class classifies the refusal.
func (r Refusal) Class() Class {
	text := strings.ToLower(strings.ReplaceAll(r.Text[:min(len(r.Text), longestRefusal)], "\n", " "))
	c, ok := match(marks, text)
	if !ok {
		c = r.byWords(r.byCode(text), text)
	}
	if !c.Suppress || r.Local {
		return c
	}
	// A phrase that permanently suppresses an address does not count if the text is about the sender or the content, or
	// answers MAIL.
	if other, ok := match(texts, strings.ReplaceAll(text, "not listed", "missing")); ok {
		// "not listed" is replaced because it refers to a directory here, not to a block list.
		switch other {
		case badSender, unauthentic, identity, reputation, rate:
			return other
		case content:
			if strings.Contains(text, "spam") || strings.Contains(text, "virus") {
				return other
			}
		}
	}
	if r.Scope == ScopeSender || strings.Contains(text, "temporar") || strings.Contains(text, "try again later") {
		return policy
	}
	return c
}

// byWords returns the class of the code, unless the text has an unambiguous phrase for another class. The phrase counts
// if the code names no cause, or if the code blames the recipient and the phrase does not. A refusal before the host
// knew the recipient is not about the recipient.
func (r Refusal) byWords(c Class, text string) Class {
	said, plainly := match(plain, text)
	switch {
	case r.Local || !plainly:
		return c
	case said.Suppress && r.Scope != ScopeRecipient && r.Scope != ScopeMessage:
		return c
	case c == unclear, c.Suppress && !said.Suppress, r.vague() && c == policy && said.Suppress, generic(r.Enhanced) &&
		c == rate:
		return said
	}
	return c
}

// vague reports whether hosts use the enhanced code for any cause.
func (r Refusal) vague() bool {
	return generic(r.Enhanced) || strings.HasSuffix(r.Enhanced, ".7.1") || strings.HasSuffix(r.Enhanced, ".7.0")
}

// byCode classifies by the enhanced code, then by the basic code together with the text.
func (r Refusal) byCode(text string) Class {
	if len(r.Enhanced) > 2 {
		detail := r.Enhanced[2:]
		if detail == "4.1" && strings.Contains(text, "access denied") {
			return noMailboxAt // Exchange Online uses this code for an address that is not in its directory.
		}
		if detail == "1.10" && !r.Local && r.Code != 556 && !strings.Contains(text, "null") {
			return noMailbox // Exchange Online uses RFC 7505's code of a null MX for an unknown recipient.
		}
		if c, ok := byEnhanced[detail]; ok {
			return c
		}
		if strings.HasPrefix(detail, "7.6") && len(detail) == 5 {
			return reputation // 5.7.606 to 5.7.649, Exchange Online's list of banned addresses.
		}
		if strings.HasPrefix(detail, "7.") {
			if c, ok := match(texts, text); ok && !c.Suppress {
				return c
			}
			return policy
		}
	}
	switch r.Code {
	case 521:
		return noDomain // The host accepts no mail (RFC 7504).
	case 556:
		return nullMX
	case 530, 534, 535, 538:
		return credentials
	case 500, 501, 502, 503, 504, 555:
		if c, ok := match(texts, text); ok && c.Suppress && r.Scope == ScopeRecipient {
			return c
		}
		return protocol
	}
	if c, ok := match(texts, text); ok {
		if c.Suppress && r.Scope != ScopeRecipient && r.Scope != ScopeMessage {
			return policy
		}
		return c
	}
	switch r.Code {
	case 551:
		return relaying
	case 552:
		return full
	case 421, 451, 450, 452, 454:
		return trouble
	case 541, 571:
		return policy
	}
	return unclear
}

func match(rules []textRule, text string) (Class, bool) {
	for _, r := range rules {
		for _, w := range r.when {
			if strings.Contains(text, w) {
				return r.is, true
			}
		}
	}
	return Class{}, false
}
