package delivery

import (
	"regexp"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"

	"errors"
)

// class is what became of a recipient.
type class int

const (
	delayed class = iota
	delivered
	bounced
	complained // of test addresses only
	suppressed // of test addresses only
)

// recipient is the verdict on one.
type recipient struct {
	address string
	class   class
	bounce  *events.Bounce // when bounced, or to be so when the schedule ends
}

// verdict is what an attempt means.
type verdict struct {
	recipients   []recipient
	host         string
	tls          string
	conversation string
	reply        string // that decided
	unknown      bool
	silent       bool          // nothing was sent at all, not even in play
	wait         time.Duration // that the host asked for
}

func (v *verdict) delayed() bool {
	for _, r := range v.recipients {
		if r.class == delayed {
			return true
		}
	}
	return false
}

// giveUp turns what is delayed into bounces: the schedule is at its end.
func (v *verdict) giveUp() {
	for i := range v.recipients {
		if r := &v.recipients[i]; r.class == delayed {
			r.class = bounced
			r.bounce.Message = "The message could not be delivered in the time that the retry schedule allows. " + r.bounce.Message
		}
	}
}

func (v *verdict) patience() time.Duration { return v.wait }

// outcome names the verdict as a whole.
func (v *verdict) outcome() string {
	if v.unknown {
		return "unknown"
	}
	seen := map[class]bool{}
	for _, r := range v.recipients {
		seen[r.class] = true
	}
	switch {
	case len(seen) != 1:
		return "mixed"
	case seen[delayed]:
		return "delayed"
	case seen[bounced], seen[suppressed]:
		return "bounced"
	}
	return "delivered"
}

// judge decides what an answer means for each recipient. It is pure.
func judge(a answer, to []string) verdict {
	v := verdict{host: a.host, tls: a.tls, conversation: a.conversation, unknown: a.unknown}
	for i, address := range to {
		var r recipient
		if a.final != nil {
			reply := a.final.Recipient(i)
			r = judgeReply(reply)
			if v.reply == "" || r.class != delivered {
				v.reply = reply.String()
			}
			v.wait = max(v.wait, waitHint(reply.Text))
		} else {
			r = judgeError(a)
			v.reply = a.err.Error()
		}
		r.address = address
		v.recipients = append(v.recipients, r)
	}
	return v
}

// judgeError is the verdict when no host heard the message.
func judgeError(a answer) recipient {
	if e, ok := errors.AsType[*smtpclient.Error](a.err); ok && e.Reply != nil && e.Reply.Code != 0 {
		r := judgeReply(*e.Reply)
		// A greeting or EHLO is about us, never about a recipient.
		if r.bounce != nil {
			r.bounce.Suppress = false
		}
		if !a.permanent {
			r.class = delayed
		}
		return r
	}
	code, message := "4.4.1", "No host of the domain could be reached: "+a.err.Error()
	switch {
	case errors.Is(a.err, resolve.ErrNoDomain):
		code, message = "5.1.2", "The recipient's domain does not exist."
	case errors.Is(a.err, resolve.ErrNoHost):
		code, message = "5.1.2", "The recipient's domain has no host for mail."
	case errors.Is(a.err, resolve.ErrNullMX):
		code, message = "5.1.10", "The recipient's domain declares that it takes no mail."
	case errors.Is(a.err, errOurselves), errors.Is(a.err, errPrivate):
		code, message = "5.4.6", "The recipient's domain leads nowhere: "+a.err.Error()+"."
	case errors.Is(a.err, smtpclient.ErrNoTLS):
		code, message = "4.7.4", "The domain's `tls` setting is enforced, and the recipient's host offers no verified TLS."
	case a.unknown:
		code, message = "4.4.2", "The host did not say whether it took the message; it will get it again with the same Message-ID."
	}
	b := &events.Bounce{Type: "Transient", SubType: "General", Message: message, DiagnosticCode: []string{"smtp; " + code + " " + clip(a.err.Error())}}
	if !a.permanent {
		return recipient{class: delayed, bounce: b}
	}
	b.Type = "Permanent"
	return recipient{class: bounced, bounce: b}
}

// kind is what a refusal is about.
type kind struct {
	subType string
	message string
	lasting bool // the address itself is at fault and will stay so: nothing is to be sent to it again
	soft    bool // a refusal with a permanent code that the recipient can mend
}

var (
	noUser      = kind{"General", "The recipient's host says that the address does not exist.", true, false}
	noEmail     = kind{"NoEmail", "The recipient's host says that the address does not take mail any more.", true, false}
	full        = kind{"MailboxFull", "The recipient's mailbox is full.", false, true}
	tooLarge    = kind{"MessageTooLarge", "The message is larger than the recipient's host takes.", false, false}
	content     = kind{"ContentRejected", "The recipient's host refused the message for its content.", false, false}
	attachment  = kind{"AttachmentRejected", "The recipient's host refused an attachment.", false, false}
	policy      = kind{"General", "The recipient's host refused the message by its policy, because of the sender and not of the recipient.", false, false}
	general     = kind{"General", "The recipient's host refused the message.", false, false}
	unspecified = kind{"Undetermined", "The recipient's host refused the message and did not say why.", false, false}
)

// byText tells refusals apart by what hosts write, where their codes say too little or mislead. The first that matches counts;
// what is about us comes before what is about the recipient, because hosts like to mention both.
var byText = []struct {
	text *regexp.Regexp
	kind kind
}{
	{regexp.MustCompile(`(?i)spamhaus|blocklist|block list|blacklist|black list|blocked using|barracuda|proofpoint|dnsbl|\brbl\b|reputation|\bS3140\b|\bS3150\b|banned sending|TSS0\d|TS0\d|\bPH01\b`), policy},
	{regexp.MustCompile(`(?i)\bspf\b|\bdkim\b|\bdmarc\b|authenticat|unauthenticated|reverse dns|\bptr\b|helo|rdns|550.5\.7\.515`), policy},
	{regexp.MustCompile(`(?i)virus|malware|infected|attachment|file type|extension`), attachment},
	{regexp.MustCompile(`(?i)spam|junk|bulk mail|content (?:rejected|filter)|url in|phish|message (?:content )?rejected|looks like`), content},
	{regexp.MustCompile(`(?i)(?:mailbox|quota|storage|disk|inbox).{0,30}(?:full|exceed|exceeded|over)|over ?quota|out of storage|insufficient (?:system )?storage`), full},
	{regexp.MustCompile(`(?i)(?:message|mail|size).{0,30}(?:too (?:large|big)|exceeds|over).{0,30}|size limit`), tooLarge},
	{regexp.MustCompile(`(?i)(?:disabled|inactive|deactivated|suspended|discontinued|no longer (?:valid|available|active|in use|works))`), noEmail},
	{regexp.MustCompile(`(?i)(?:user|recipient|mailbox|account|address|alias).{0,40}(?:unknown|not found|doesn'?t exist|does not exist|not exist|no such|invalid|unavailable|not available|not local)|no such (?:user|mailbox|recipient|person|address)|unknown (?:user|recipient|mailbox|address|local)|no mailbox|not a valid (?:user|mailbox|recipient)|invalid (?:recipient|mailbox|user|address)|user unknown|does not have (?:an|a) .{0,20} account`), noUser},
}

// byCode are the enhanced codes of RFC 3463 and the registry that grew from it.
var byCode = map[string]kind{
	"1.0": noUser, "1.1": noUser, "1.2": {"General", "The recipient's domain is unknown to its host.", false, false}, "1.3": noUser, "1.6": noEmail,
	"1.10": noEmail, "1.4": general, "1.5": general, "1.7": policy, "1.8": policy, "1.9": general,
	"2.0": unspecified, "2.1": noEmail, "2.2": full, "2.3": tooLarge, "2.4": general,
	"3.0": general, "3.1": full, "3.2": general, "3.3": general, "3.4": tooLarge, "3.5": general,
	"4.0": general, "4.1": general, "4.2": general, "4.3": general, "4.4": general, "4.5": general, "4.6": general, "4.7": general,
	"5.0": general, "5.1": general, "5.2": general, "5.3": general, "5.4": general,
	"6.0": content, "6.1": attachment, "6.2": content, "6.3": content, "6.5": content, "6.6": content, "6.7": general,
	"7.0": policy, "7.1": policy, "7.2": policy,
}

// judgeReply is the verdict on a recipient by the reply that decided.
func judgeReply(r smtpclient.Reply) recipient {
	if r.Positive() {
		return recipient{class: delivered}
	}
	k := kindOf(r)
	b := &events.Bounce{Type: "Permanent", SubType: k.subType, Message: k.message, DiagnosticCode: []string{"smtp; " + clip(r.String())}}
	switch {
	case !r.Permanent():
		b.Type = "Transient"
		return recipient{class: delayed, bounce: b}
	case k.soft:
		b.Type = "Transient"
	case k == unspecified:
		b.Type = "Undetermined"
	}
	b.Suppress = k.lasting
	return recipient{class: bounced, bounce: b}
}

func kindOf(r smtpclient.Reply) kind {
	_, detail, _ := strings.Cut(r.Enhanced, ".")
	k, known := byCode[detail]
	switch {
	case strings.HasPrefix(detail, "7."):
		// Security and policy: about us, whatever else the text says. Some hosts use 5.7.1 for users that do not exist, but to
		// believe that would suppress people for our reputation.
		k, known = policy, true
		for _, t := range byText {
			if t.kind.subType != "General" && t.kind.subType != "NoEmail" && t.text.MatchString(r.Text) {
				return t.kind
			}
		}
		return k
	case known && k.lasting:
		// The code says that the address is at fault. Hosts that block us say so in words all the same.
		for _, t := range byText[:2] {
			if t.text.MatchString(r.Text) {
				return policy
			}
		}
		return k
	case known && k != unspecified && k != general:
		return k
	}
	for _, t := range byText {
		if t.text.MatchString(r.Text) {
			return t.kind
		}
	}
	switch {
	case known:
		return k
	case r.Code == 552:
		return full
	case r.Code == 554 || r.Code == 571:
		return policy
	case r.Code == 551 || r.Code == 553 || r.Code == 550:
		return general
	}
	return unspecified
}
