package report

import "strings"

// Fault is the party that caused a refusal. The Fault determines who must act and whether an address may be suppressed.
type Fault string

const (
	Recipients Fault = "recipient" // the address, which the recipient or the author of the email can correct
	Ours       Fault = "ours"      // this installation or the sender: reputation, authentication, content or protocol
	Hosts      Fault = "host"      // the receiving host: policy, load or errors
)

// These are the bounce types and subtypes (webhook reference section 2.3).
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

// Class describes refusals that have the same cause.
type Class struct {
	Type, SubType string
	Fault         Fault
	Suppress      bool   // the address is permanently unusable
	Throttle      bool   // the host asks for a lower sending rate or a pause
	Say           string // an explanation of the refusal for users
}

// Greylisted reports whether the refusal is due to greylisting, in which a host first refuses mail from a new sender
// and then accepts a later attempt.
func (c Class) Greylisted() bool { return c.Say == greylist.Say }

// Expired returns the class for a message that could not be delivered in time because of temporary refusals. Because no
// refusal was permanent, the address may be valid.
func (c Class) Expired() Class {
	c = c.forNow()
	c.Say = "The message could not be delivered in time; the last answer was this. " + c.Say
	return c
}

// forNow returns a variant of the class for a temporary refusal.
func (c Class) forNow() Class {
	c.Type, c.Suppress = Transient, false
	if c.SubType == Undetermined || c.SubType == NoEmail {
		c.SubType = General
	}
	return c
}

// Scope says what a refusal is about. If a host refuses a message before it has received the recipient's address, the
// refusal says little about the recipient.
type Scope uint8

const (
	ScopeRecipient Scope = iota // the refusal is about the recipient; also used if the scope is unknown
	ScopeMessage                // the refusal is about the message, and the host has received the recipient's address
	ScopeSender                 // the sender
	ScopeSession                // the refusal is about the connection: greeting, TLS or authentication
)

// Refusal is a host's negative reply.
type Refusal struct {
	Code     int    // reply code from 400 to 599; 0 if unknown
	Enhanced string // "5.1.1" (RFC 3463), or empty
	Text     string // the reply without its codes; may have several lines
	Scope    Scope
	Local    bool // the refusal comes from this installation and not from a host
}

// Classify classifies a host's refusal to accept mail for a recipient. The reply code may be 0 and the enhanced status
// code may be empty.
func Classify(code int, enhanced, text string) Class {
	return Refusal{Code: code, Enhanced: enhanced, Text: text}.Class()
}

// longestRefusal is the maximum number of bytes in a host's reply that are searched for phrases. The limit keeps the
// search cheap, although there are several hundred phrases.
const longestRefusal = 4 << 10

// Class classifies the refusal.
func (r Refusal) Class() Class {
	text := strings.ToLower(strings.ReplaceAll(r.Text[:min(len(r.Text), longestRefusal)], "\n", " "))
	// Cisco AsyncOS precedes every refusal of a recipient with this phrase, whatever the host's reason is.
	text = strings.ReplaceAll(text, "unknown address error", "")
	c, ok := match(marks, text)
	if !ok {
		c = r.byWords(r.byCode(text), text)
	}
	if !c.Suppress || r.Local {
		return c
	}
	// A class that suppresses the address is overridden if the text is about the sender or the content, or if it is a
	// reply to the MAIL command.
	if other, ok := match(texts, strings.ReplaceAll(text, "not listed", "missing")); ok {
		// The phrase "not listed" was replaced above, because it refers to a directory and not to a block list.
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

// byWords returns c, the class for the code, unless the text contains an unambiguous phrase for another class. The
// phrase takes precedence if the code does not specify a cause, or if the code blames the recipient and the phrase does
// not. If the host refused the message before it received the recipient's address, a phrase about the recipient is
// ignored.
func (r Refusal) byWords(c Class, text string) Class {
	said, plainly := match(plain, text)
	switch {
	case r.Local || !plainly:
		return c
	case said.Suppress && r.Scope != ScopeRecipient && r.Scope != ScopeMessage:
		return c
	case c == unclear, c.Suppress && !said.Suppress, r.vague() && (c == policy || c == trouble) && said.Suppress,
		generic(r.Enhanced) && c == rate:
		return said
	}
	return c
}

// vague reports whether hosts use the enhanced status code for many different causes.
func (r Refusal) vague() bool {
	return generic(r.Enhanced) || strings.HasSuffix(r.Enhanced, ".7.1") || strings.HasSuffix(r.Enhanced, ".7.0")
}

// byCode classifies a refusal by its enhanced status code or, if that is not conclusive, by its reply code and text.
func (r Refusal) byCode(text string) Class {
	if len(r.Enhanced) > 2 {
		detail := r.Enhanced[2:]
		if detail == "4.1" && strings.Contains(text, "access denied") {
			return noMailboxAt // Exchange Online uses this code for an address that is not in its directory.
		}
		if detail == "1.10" && !r.Local && r.Code != 556 && !strings.Contains(text, "null") {
			return noMailbox // Exchange Online uses the null MX code (RFC 7505) for unknown recipients.
		}
		if c, ok := byEnhanced[detail]; ok {
			return c
		}
		if strings.HasPrefix(detail, "7.6") && len(detail) == 5 {
			return reputation // Exchange Online uses 5.7.606 to 5.7.649 for banned sender IP addresses.
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
