package explain

import (
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/mail/report"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// Actor says who must act so that an email, or the next one, arrives.
type Actor string

const (
	Nobody      Actor = "nobody"
	You         Actor = "you"          // the team that sent the email
	DomainOwner Actor = "domain_owner" // whoever can change the DNS records of the sending domain
	Recipient   Actor = "recipient"
	Operator    Actor = "operator" // of this installation
	Provider    Actor = "provider" // of the recipient's mailbox
)

// Actors lists all actors.
var Actors = []Actor{Nobody, You, DomainOwner, Recipient, Operator, Provider}

// Identity is what a refusal blames.
type Identity string

const (
	BlamesNothing   Identity = "nothing"
	BlamesRecipient Identity = "recipient"
	BlamesSource    Identity = "source_address" // the IP address that sent the email
	BlamesDomain    Identity = "sending_domain"
	BlamesMessage   Identity = "message"
	BlamesLink      Identity = "link" // the domain of a link in the message
	BlamesHost      Identity = "recipient_host"
	BlamesServer    Identity = "sending_server" // this installation's software or settings
	BlamesUnknown   Identity = "unknown"
)

// Class is the cause of a refusal.
type Class string

// The classes. Those that package report knows have its names.
const (
	UnknownAddress  Class = "unknown_address"
	MailboxDisabled Class = "mailbox_disabled"
	InvalidDomain   Class = "invalid_domain"
	MailboxFull     Class = "mailbox_full"
	RecipientBusy   Class = "recipient_busy"
	Size            Class = "size"
	Content         Class = "content"
	Attachment      Class = "attachment"
	Authentication  Class = "authentication"
	Reputation      Class = "reputation"
	RateLimit       Class = "rate_limit"
	Policy          Class = "policy"
	SenderAddress   Class = "sender_address"
	HostIdentity    Class = "host_identity"
	Greylisting     Class = "greylisting"
	Relaying        Class = "relaying"
	Loop            Class = "loop"
	Unreachable     Class = "unreachable"
	TLS             Class = "tls"
	DNS             Class = "dns"
	International   Class = "international"
	Protocol        Class = "protocol"
	Credentials     Class = "credentials"
	HostTrouble     Class = "host_trouble"
	NoAnswer        Class = "no_answer" // the host took the whole message and did not answer
	OwnLimit        Class = "own_limit" // Postrider did not try the host, because it failed a short time before
	Unclear         Class = "unclear"
	Captured        Class = "captured"  // by the outbox of `postrider dev`
	Simulated       Class = "simulated" // by a test address
	Accepted        Class = "accepted"
)

// ReplyMeaning translates the reply that decided an attempt.
type ReplyMeaning struct {
	Class     Class    `json:"class"`
	Blames    Identity `json:"blames"`
	Act       Actor    `json:"who_must_act"`
	Advice    Advice   `json:"advice"`
	Says      string   `json:"says" doc:"The meaning of the reply, in one sentence."`
	Published string   `json:"published_by" doc:"The page of the provider that defines the reply; empty if the meaning follows from its code and words."`
	Temporary bool     `json:"temporary" doc:"Whether the host refused only for now."`
}

// reply is an SMTP reply, as an attempt stores it.
type reply struct {
	code     int
	enhanced string
	text     string
}

// parseReply splits a stored reply, such as "550 5.1.1 no such user". Bounce events precede it with "smtp; ".
func parseReply(s string) (r reply) {
	s = strings.TrimSpace(strings.TrimPrefix(s, "smtp;"))
	if len(s) >= 3 {
		if n, err := strconv.Atoi(s[:3]); err == nil && n >= 200 && n <= 599 {
			r.code, s = n, strings.TrimLeft(s[3:], " -")
		}
	}
	if word, rest, _ := strings.Cut(s, " "); isEnhanced(word) {
		r.enhanced, s = word, rest
	}
	r.text = strings.TrimSpace(s)
	return r
}

// isEnhanced reports whether a word is an enhanced status code, such as "5.1.1".
func isEnhanced(word string) bool {
	parts := strings.Split(word, ".")
	if len(parts) != 3 || len(word) > 9 {
		return false
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || i == 0 && n != 2 && n != 4 && n != 5 {
			return false
		}
	}
	return true
}

// Translate returns the meaning of a reply. The parameter local says that Postrider wrote the reply, because no host
// answered; final says that the email is not tried again.
func Translate(p evidence.Provider, stage string, text string, local, final bool) ReplyMeaning {
	r := parseReply(text)
	m := translate(p, stage, r, local)
	m.Temporary = r.code/100 == 4
	m.place(p, local)
	usual := consequences[m.Class]
	if m.Blames == "" {
		m.Blames = usual.blames
	}
	act := usual.later
	if final || !m.Temporary {
		act = usual.now
	}
	if m.Act == "" {
		m.Act = act.who
	}
	if m.Advice == "" {
		m.Advice = act.advice
	}
	if m.Says == "" {
		m.Says = usual.says
	}
	if p == evidence.Relay {
		m.ofRelay(local)
	}
	return m
}

// ofRelay changes the meaning of a reply of the operator's relay, or of an attempt to reach it. A relay that does not
// work concerns the operator at once, because no email leaves the installation then.
func (m *ReplyMeaning) ofRelay(local bool) {
	if rest, ok := strings.CutPrefix(m.Says, evidence.Other.Name()); ok {
		m.Says = evidence.Relay.Name() + rest
	}
	if local && m.Class == TLS {
		m.Says = "The relay does not provide the encryption that the settings or the sending domain demand."
	}
	if local && (m.Class == Unreachable || m.Class == TLS) || m.Act == Provider {
		m.Blames, m.Act, m.Advice = BlamesServer, Operator, CheckRelay
	}
}

// unknownPolicy begins the text of package tlspolicies for a policy that could not be read.
const unknownPolicy = "this installation could not find out the MTA-STS policy"

// byRule changes the meaning of an attempt that ended because a connection proved less than a rule demands, or because
// the rule is unknown. The text is the reply. Only the owner of the recipient's domain can change a rule of that
// domain.
func (m *ReplyMeaning) byRule(rule evidence.Rule, text string) {
	if m.Class != TLS {
		return
	}
	switch rule {
	case evidence.DANE, evidence.DANEUnusable:
		m.Says = "The recipient's domain demands encryption by the TLSA records of its mail host (DANE), and the host does not " +
			"provide what they demand, or their signatures are not valid."
	case evidence.MTASTS:
		if strings.Contains(text, unknownPolicy) {
			m.Blames, m.Act, m.Advice = BlamesServer, Operator, AskOperator
			m.Says = "This installation could not find out whether the recipient's domain demands verified encryption (MTA-STS)."
			return
		}
		m.Says = "The recipient's domain demands verified encryption by its MTA-STS policy, and its mail host does not provide " +
			"it, or the policy does not name the host."
	default:
		return
	}
	m.Act, m.Advice = Provider, TellDomain
}

// place sets who must act for causes that depend on where the reply comes from: the operator's relay, the recipient's
// mail server or, with local, this installation.
func (m *ReplyMeaning) place(p evidence.Provider, local bool) {
	switch {
	case m.Act != "" || m.Class != Relaying && m.Class != Credentials && m.Class != Loop:
	case local && m.Class == Loop:
		m.Act, m.Advice = Operator, AskOperator
		m.Says = "The recipient's domain names this installation as its mail host, which does not take mail for it."
	case local:
	case p == evidence.Relay && m.Class == Relaying:
		m.Blames, m.Act, m.Advice = BlamesServer, Operator, FixRelay
		m.Says = "The relay does not pass on mail from this installation."
	case p != evidence.Relay && p != evidence.NotRecorded && m.Class == Credentials:
		m.Blames, m.Act, m.Advice = BlamesHost, Provider, TellRecipient
		m.Says = "The recipient's mail server demands a user name and password, which it may not demand from other " +
			"mail servers."
	}
}

func translate(p evidence.Provider, stage string, r reply, local bool) ReplyMeaning {
	switch {
	case local && r.enhanced == "4.5.3": // package smtpclient has the text
		return ReplyMeaning{Class: Unreachable,
			Says: "The host accepts fewer recipients in one message, and a further message could not begin at once."}
	case local:
		return ReplyMeaning{Class: ownClass(r)}
	case r.code/100 == 2:
		return ReplyMeaning{Class: Accepted}
	}
	lower := strings.ToLower(r.text)
	for _, x := range rules {
		if x.matches(p, r, lower) {
			return x.is
		}
	}
	if r.code == 530 { // the host demands a login before MAIL (RFC 4954)
		return ReplyMeaning{Class: Credentials}
	}
	return ReplyMeaning{Class: Class(classOf(stage, r).Name())}
}

// ownClass returns the class of a reply that Postrider wrote. Package delivery has the texts and codes.
func ownClass(r reply) Class {
	switch {
	case strings.HasPrefix(r.text, "captured as "):
		return Captured
	case strings.Contains(r.text, "simulated"):
		return Simulated
	case strings.HasPrefix(r.text, "the connection ended before the host said"), r.text == noMessageAnswer:
		return NoAnswer
	case r.code/100 == 2:
		return Accepted
	}
	switch r.enhanced {
	case "4.7.4", "4.7.5":
		return TLS
	case "4.7.8":
		return Credentials
	case "4.4.1", "4.4.2":
		return Unreachable
	case "4.4.3":
		return DNS
	case "5.4.6":
		return Loop
	}
	return Class(report.Refusal{Code: r.code, Enhanced: r.enhanced, Text: r.text, Local: true}.Class().Name())
}

// noMessageAnswer is the text of package delivery for a host that accepted recipients and never answered DATA.
const noMessageAnswer = "the host did not answer to the message"

// classOf returns the class that package report finds for a host's reply.
func classOf(stage string, r reply) report.Class {
	scope := report.ScopeRecipient
	switch stage {
	case "connect", "greeting", "hello", "tls", "auth":
		scope = report.ScopeSession
	case "mail":
		scope = report.ScopeSender
	case "data", "body", "final":
		scope = report.ScopeMessage
	}
	return report.Refusal{Code: r.code, Enhanced: r.enhanced, Text: r.text, Scope: scope}.Class()
}
