package explain

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/sending/evidence"
)

// rule gives the meaning of replies that a provider or a list defines, more precisely than package report.
type rule struct {
	of   []evidence.Provider // nil means any
	when string              // a phrase in lower case, or several with "|" between, of which one must occur
	also string              // another phrase that must occur, or ""
	code string              // the enhanced status code, without its first digit, or several with "|" between, or ""
	is   ReplyMeaning
}

func (x *rule) matches(p evidence.Provider, r reply, lower string) bool {
	if x.of != nil && !slices.Contains(x.of, p) {
		return false
	}
	if x.code != "" && (len(r.enhanced) < 3 || !slices.Contains(strings.Split(x.code, "|"), r.enhanced[2:])) {
		return false
	}
	in := func(phrase string) bool { return strings.Contains(lower, phrase) }
	return slices.ContainsFunc(strings.Split(x.when, "|"), in) && in(x.also)
}

// Pages on which providers publish the meaning of their replies.
const (
	googlePage    = "Google Workspace Admin Help: SMTP errors and codes"
	microsoftPage = "Outlook.com Postmaster: troubleshooting"
	exchangePage  = "Microsoft Learn: email non-delivery reports in Exchange Online"
	yahooPage     = "Yahoo Sender Hub: SMTP error codes"
	applePage     = "Apple Support: postmaster information for iCloud Mail"
	mimecastPage  = "Mimecast: SMTP error codes"
	spamhausPage  = "Spamhaus: IP and domain reputation checker"
)

var (
	google     = []evidence.Provider{evidence.Google}
	microsoft  = []evidence.Provider{evidence.Microsoft}
	yahoo      = []evidence.Provider{evidence.Yahoo}
	apple      = []evidence.Provider{evidence.Apple}
	mimecast   = []evidence.Provider{evidence.Mimecast}
	proofpoint = []evidence.Provider{evidence.Proofpoint}
	orange     = []evidence.Provider{evidence.Orange}
	relay      = []evidence.Provider{evidence.Relay}
)

// blame returns a meaning whose blamed identity, actor and advice differ from the consequences of its class.
func blame(c Class, who Identity, act Actor, a Advice, says, page string) ReplyMeaning {
	return ReplyMeaning{Class: c, Blames: who, Act: act, Advice: a, Says: says, Published: page}
}

// says returns a meaning with the consequences of its class and a sentence of its own.
func says(c Class, text, page string) ReplyMeaning {
	return ReplyMeaning{Class: c, Says: text, Published: page}
}

// relayRules are those of the operator's relay, which is usually a service that sends mail for its customers.
var relayRules = []rule{
	{relay, "message quota exceeded", "", "", blame(RateLimit, BlamesServer, Operator, FixRelay,
		"The account at the relay has used up its quota.", "")},
	{relay, "address is not verified|not owned by user", "", "", blame(SenderAddress, BlamesServer, Operator, FixRelay,
		"The account at the relay may not send mail with this sender.", "")},
}

// rules are tried in order; the first match wins. Rules without a provider come last, because mail filters forward the
// replies of lists.
var rules = slices.Concat(relayRules, googleRules, microsoftRules, yahooRules, appleRules, filterRules, listRules)

var googleRules = []rule{
	{google, "originating from your dkim", "", "", blame(RateLimit, BlamesDomain, You, SendLessOften,
		"Google sees an unusual rate of mail that your domain has signed, and limits it.", googlePage)},
	{google, "originating from your spf", "", "", blame(RateLimit, BlamesDomain, You, SendLessOften,
		"Google sees an unusual rate of mail with your domain in its return path, and limits it.", googlePage)},
	{google, "your url domain", "", "", blame(RateLimit, BlamesLink, You, ChangeLinks,
		"Google sees an unusual rate of mail with links to one of your domains, and limits it.", googlePage)},
	{google, "unusual rate of", "netblock", "", says(RateLimit,
		"Google sees an unusual rate of mail from the network of the sending IP address, and limits it.",
		googlePage)},
	{google, "unusual rate of", "", "", says(RateLimit,
		"Google sees an unusual rate of mail from the sending IP address, and limits it.", googlePage)},
	{google, "low reputation of the sending domain", "", "", blame(Reputation, BlamesDomain, You, ImproveReputation,
		"Google refuses the email because your domain has a very low reputation there.", googlePage)},
	{google, "low reputation of the sending ip", "", "", says(Reputation,
		"Google refuses the email because the sending IP address has a very low reputation there.", googlePage)},
	{google, "nature of the content", "", "", says(Content,
		"Google takes the content or a link of the email for suspicious.", googlePage)},
	{google, "likely unsolicited mail", "", "", says(Content, "Google takes the email for unsolicited mail.",
		googlePage)},
	{google, "ptr record", "", "", says(HostIdentity,
		"The sending IP address has no PTR record, or its name does not lead back to it.", googlePage)},
	{google, "", "", "7.23|7.25", says(HostIdentity,
		"The sending IP address has no PTR record, or its name does not lead back to it.", googlePage)},
	{google, "didn't pass", "", "", says(Authentication,
		"The email does not pass SPF or DKIM, which Google demands.", googlePage)},
	{google, "", "", "7.29", blame(TLS, BlamesServer, Operator, AskOperator,
		"Google accepts this mail only over TLS.", googlePage)},
	{google, "aligned with", "", "", says(Authentication,
		"The address in From belongs to another domain than the one that SPF or DKIM confirm.", googlePage)},
	{google, "secure connection", "", "", blame(TLS, BlamesServer, Operator, AskOperator,
		"Google accepts this mail only over TLS.", googlePage)},
	{google, "tls required", "", "", blame(TLS, BlamesServer, Operator, AskOperator,
		"The recipient's domain at Google accepts mail only over TLS.", googlePage)},
	{google, "not in whitelist", "", "", blame(Policy, BlamesHost, Recipient, AskToAllow,
		"The recipient's organization takes mail only from addresses on its own list.", googlePage)},
	{google, "email policy", "", "", says(Policy, "A rule of the recipient's organization refuses the email.",
		googlePage)},
	{google, "not rfc 5322 compliant|valid messageid", "", "",
		blame(Protocol, BlamesMessage, You, ChangeContent, "The header of the message violates RFC 5322.", googlePage)},
	{google, "out of storage", "", "", says(MailboxFull, "The recipient's storage at Google is full.", googlePage)},
	{google, "receiving mail at a rate", "", "", says(RecipientBusy,
		"The recipient gets more mail than Google allows for one mailbox.", googlePage)},
	{google, "too many recipients", "", "", says(RateLimit, "The message has more recipients than Google takes at "+
		"once.",
		googlePage)},
}

var microsoftRules = []rule{
	{microsoft, "part of their network|s3150", "", "",
		says(Reputation, "Microsoft blocks the network of the sending IP address for Outlook.com.", microsoftPage)},
	{microsoft, "rate limited due to ip reputation|rp-00", "", "", says(Reputation,
		"Microsoft takes only little mail from the sending IP address, because of its reputation.", microsoftPage)},
	{microsoft, "exceeded the connection limit|exceeded the maximum number of connections", "", "",
		says(RateLimit, "The sending IP address has more connections to Microsoft than it may have.", microsoftPage)},
	{microsoft, "banned sending ip|banned sender", "", "",
		says(Reputation, "Microsoft 365 has banned the sending IP address.", exchangePage)},
	{microsoft, "sendinglimit", "", "", says(RateLimit, "Microsoft limits how much mail the sender may send.",
		exchangePage)},
	{microsoft, "traffic not accepted from this ip", "", "", says(Reputation,
		"Microsoft 365 takes no mail from the sending IP address.", exchangePage)},
	{microsoft, "tenantattribution", "", "", says(Relaying,
		"The domain names Microsoft 365 as its mail host, but is not set up there.", exchangePage)},
	{microsoft, "no mail-enabled subscriptions", "", "", says(Unreachable,
		"The recipient's organization at Microsoft 365 has no mailboxes there at present.", exchangePage)},
	{microsoft, "starttls is required", "", "", blame(TLS, BlamesServer, Operator, AskOperator,
		"Microsoft accepts this mail only over TLS.", exchangePage)},
	{microsoft, "customer block list", "", "", says(Policy,
		"The recipient's organization has the sending IP address on a block list of its own.", exchangePage)},
	{microsoft, "required authentication level", "", "", says(Authentication,
		"Outlook.com demands SPF, DKIM and DMARC from domains that send much mail to it.", exchangePage)},
	{microsoft, "does not pass dmarc", "", "", says(Authentication,
		"The email does not pass DMARC, and your domain's policy says to refuse it.", exchangePage)},
	{microsoft, "over ipv6", "", "", blame(Authentication, BlamesDomain, DomainOwner, FixAuthentication,
		"Microsoft takes mail over IPv6 only if SPF or DKIM pass.", exchangePage)},
	{microsoft, "reverse dns", "", "", says(HostIdentity, "The sending address has no PTR record.", exchangePage)},
	{microsoft, "please try again later", "", "7.500", says(RateLimit,
		"Microsoft has restricted the sending IP address for a while, because of suspicious activity.",
		exchangePage)},
	{microsoft, "access denied, please try again later", "", "", says(RateLimit,
		"Microsoft has restricted the sending IP address for a while, because of suspicious activity.",
		exchangePage)},
	{microsoft, "server busy", "", "", says(RateLimit,
		"Microsoft takes only little mail from the sending IP address for now.", exchangePage)},
	{microsoft, "as(201806281)|recipient not found by smtp address lookup", "", "",
		says(UnknownAddress, "The recipient's organization at Microsoft 365 has no such address.", exchangePage)},
	{microsoft, "access denied", "", "4.1", says(UnknownAddress,
		"The recipient's organization at Microsoft 365 has no such address.", exchangePage)},
	{microsoft, "restricted for sending", "", "", says(Policy,
		"The recipient takes mail only from senders that it has listed.", exchangePage)},
	{microsoft, "recipient thread limit", "", "", says(RecipientBusy,
		"The recipient gets more mail than Exchange takes for one mailbox.", exchangePage)},
	{microsoft, "recipientnotfound", "", "", says(UnknownAddress, "Exchange does not know the address.",
		exchangePage)},
	{nil, "not authorized to send to the recipient", "", "", says(Policy,
		"The recipient takes mail only from senders that it has listed.", exchangePage)},
	{nil, "resolver.rst.recipientsizelimit", "", "", says(Size,
		"The message is larger than the recipient's mailbox takes.", exchangePage)},
	{nil, "resolver.rst.notauthorized", "", "", says(Policy,
		"The recipient takes mail only from senders that it has listed.", exchangePage)},
	{nil, "resolver.rst.authrequired", "", "", says(Policy,
		"The recipient takes mail only from its own organization.", exchangePage)},
}

var yahooRules = []rule{
	{yahoo, "[tss", "", "", says(Reputation,
		"Yahoo defers or refuses mail from the sending IP address, because of its volume or of complaints.",
		yahooPage)},
	{yahoo, "[ipts|[ts0", "", "", says(Reputation,
		"Yahoo defers mail from the sending IP address, because of its volume or of complaints.", yahooPage)},
	{yahoo, "[ph01]", "", "", says(Content, "Yahoo takes the content of the email for phishing.", yahooPage)},
	{yahoo, "max message per connection|maximum number of messages per connection", "", "",
		says(RateLimit, "Yahoo takes only a number of emails over one connection.", yahooPage)},
	{yahoo, "unauthenticated", "", "", says(Authentication, "Yahoo demands that mail passes SPF or DKIM.",
		yahooPage)},
	{yahoo, "unresolvable rfc.5321", "", "", says(SenderAddress,
		"The domain of the return path cannot be found in the DNS.", yahooPage)},
	{yahoo, "domain's dmarc policy", "", "", says(Authentication,
		"The email does not pass DMARC, and your domain's policy says to refuse it.", yahooPage)},
	{yahoo, "", "", "7.9", says(Authentication,
		"The email does not pass SPF, DKIM or DMARC, which Yahoo demands.", yahooPage)},
	{yahoo, "[gl01]", "", "", says(Greylisting, "Yahoo takes mail from a new sender only at a later try.", yahooPage)},
	{yahoo, "policy reasons", "", "", says(Content,
		"Yahoo refuses the email because of its content, its links or its authentication.", yahooPage)},
	{yahoo, "mailbox not found", "", "", says(UnknownAddress, "Yahoo does not know the address.", yahooPage)},
}

var appleRules = []rule{
	{apple, "excessive volume", "", "", says(RateLimit, "Apple takes only little mail from the sending IP address "+
		"for now.",
		applePage)},
	{apple, "[hme1]", "", "", says(Authentication, "The email failed both SPF and DKIM.", applePage)},
	{apple, "dmarc policy", "", "", says(Authentication,
		"The email does not pass DMARC, and your domain's policy says to refuse it.", applePage)},
	{apple, "[hm08]|[cs01]", "", "", says(Content, "A rule of Apple refuses the content of the email.", applePage)},
	{apple, "[hcm1]|[bs02]", "", "",
		says(RateLimit, "Apple takes only little mail from the sending IP address for now.", applePage)},
	{apple, "inactive email address", "", "", says(MailboxDisabled, "The mailbox at Apple is not in use.",
		applePage)},
}

// filterRules are those of filters before mailboxes, and of other providers.
var filterRules = []rule{
	{mimecast, "internal resources are temporarily unavailable", "", "", says(Greylisting,
		"Mimecast takes mail from a new sender only at a later try.", mimecastPage)},
	{mimecast, "anti-spoofing", "", "", says(Policy,
		"The recipient's organization refuses mail that names its own domain as the sender.", mimecastPage)},
	{mimecast, "sender invalid", "", "", says(Authentication, "The email failed SPF, DKIM or DMARC.", mimecastPage)},
	{mimecast, "poor reputation", "", "", says(Reputation, "Mimecast blocks the sending IP address.", mimecastPage)},
	{mimecast, "maximum email size", "", "", says(Size, "", mimecastPage)},
	{mimecast, "ip reputation", "", "", says(Reputation, "Mimecast blocks the sending IP address.", mimecastPage)},
	{mimecast, "temporarily blacklisted", "", "", says(RateLimit,
		"Mimecast takes no more mail from the sending IP address for a while.", mimecastPage)},
	{mimecast, "content examination", "", "", says(Content,
		"A rule of the recipient's organization refuses the content of the email.", mimecastPage)},
	{mimecast, "envelope blocked|administrative prohibition", "", "",
		says(Policy, "The recipient's organization blocks the sender.", mimecastPage)},
	{mimecast, "security policies", "", "", says(Policy, "A rule of the recipient's organization refuses the email.",
		mimecastPage)},
	{mimecast, "open relay not allowed", "", "", says(Relaying, "The domain is not set up at Mimecast.",
		mimecastPage)},
	{mimecast, "recipient temporarily unavailable", "", "", says(HostTrouble,
		"Mimecast cannot ask the recipient's own server whether the address exists.", mimecastPage)},
	{mimecast, "unable to process connection", "", "", says(HostTrouble, "Mimecast is overloaded.", mimecastPage)},
	{nil, "blocked - see https://ipcheck.proofpoint.com|proofpoint.com/dnsbl-lookup", "", "",
		says(Reputation, "Proofpoint blocks the sending IP address.", "Proofpoint: IP check")},
	{proofpoint, "local policy violation|delivery not authorized", "", "",
		says(Policy, "A rule of the recipient's organization refuses the email.", "")},
	{nil, "verify your sending mail server is authorized", "", "", says(Reputation,
		"The recipient's filter does not take mail from the sending IP address.", "")},
	{orange, "ofr_416", "", "", says(UnknownAddress, "Orange does not know the address.", "")},
	{orange, "ofr_417", "", "", says(MailboxFull, "The recipient's mailbox at Orange is full.", "")},
	{orange, "ofr_104|ofr104", "", "",
		says(RateLimit, "The sending IP address has too many connections to Orange.", "")},
	{orange, "ofr_", "", "", says(Reputation, "Orange limits the sending IP address, because of its reputation.",
		"")},
	{orange, "lpn007", "", "", says(Reputation, "La Poste limits the sending IP address, because of its "+
		"reputation.", "")},
	{[]evidence.Provider{evidence.TOnline}, "ip=", "tosa", "", says(Reputation,
		"T-Online takes mail only from servers that it knows.", "T-Online: rules for mail servers")},
	{[]evidence.Provider{evidence.Comcast}, "rl0000", "", "", says(RateLimit,
		"Comcast takes only little mail from the sending IP address for now.", "Xfinity: postmaster error codes")},
	{[]evidence.Provider{evidence.Comcast}, "block for spam", "", "", says(Reputation,
		"Comcast blocks the sending IP address.", "Xfinity: postmaster error codes")},
	{[]evidence.Provider{evidence.Cisco}, "recipients received this hour", "", "", says(RateLimit, "", "")},
	{[]evidence.Provider{evidence.Cisco}, "poor reputation", "", "", says(Reputation,
		"The recipient's filter blocks the sending IP address, because of its reputation.",
		"Talos: reputation center")},
}

// linkLists are block lists of domains in links and senders.
var linkLists = []string{"dbl.spamhaus", "spamhaus dbl", "/dbl/", "surbl", "uribl", "ivmuri"}

// listRules are those of block lists and of common phrases.
var listRules = func() (all []rule) {
	for _, list := range linkLists {
		all = append(all, rule{nil, list, "", "", blame(Reputation, BlamesLink, You, ChangeLinks,
			"A domain in the email is on a block list of domains.", spamhausPage)})
	}
	return append(all,
		rule{nil, "spamhaus", "", "", says(Reputation, "The sending IP address is on a block list of Spamhaus.",
			spamhausPage)},
		rule{nil, "starttls", "first", "", blame(TLS, BlamesServer, Operator, AskOperator,
			"The recipient's mail server accepts mail only over TLS.", "")},
		rule{nil, "encryption required|requires encryption", "", "", blame(TLS, BlamesServer, Operator, AskOperator,
			"The recipient's mail server accepts mail only over TLS.", "")},
		rule{nil, "temporarily deferred while", "", "", says(Greylisting, "", "")},
		rule{nil, "cloudmark sender intelligence", "", "", says(Reputation,
			"The sending IP address is on a list of Cloudmark.", "Cloudmark: sender intelligence")},
		rule{nil, "trend micro email reputation", "", "", says(Reputation,
			"The sending IP address is on a list of Trend Micro.", "Trend Micro: email reputation services")},
		rule{nil, "spam or forged", "dnsbl", "", says(Reputation, "", "")},
		rule{nil, "maximum number of concurrent|too much mail from", "", "", says(RateLimit, "", "")},
		rule{nil, "helo command rejected", "", "", says(HostIdentity, "", "")},
		rule{nil, "authentication is required", "relay", "", ReplyMeaning{Class: Credentials}},
		rule{nil, "too many spams from your ip", "", "", says(Reputation, "", "")},
		rule{nil, "aup#", "", "", says(Reputation, "Spectrum blocks or limits the sending IP address.", "")},
		rule{nil, "sender verify callout", "", "", says(SenderAddress,
			"The recipient's mail server could not check whether the return path takes mail.", "")},
		rule{nil, "reject, id=", "banned", "", says(Attachment, "", "")},
		rule{nil, "reject, id=|spam points|dt:spm|mail content denied", "", "", says(Content, "", "")},
		rule{nil, "frequency limited", "", "", says(RateLimit, "", "")},
		rule{nil, "invalid helo", "", "", says(HostIdentity, "", "")},
		rule{nil, "headers fail syntax", "", "", blame(Protocol, BlamesMessage, You, ChangeContent,
			"The header of the message violates RFC 5322.", "")},
	)
}()
