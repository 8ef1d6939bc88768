package report

// The following variables are the refusal classes. An address is suppressed only for permanent problems with the
// address itself. An address whose domain does not exist in the DNS is not suppressed, because domains expire and are
// registered again, and another attempt costs only one DNS query. Refusals that are due to the sender, the content or a
// policy are Transient: the address is valid, and the host may later accept a changed email or a sender whose
// reputation has improved.
var (
	noMailbox = Class{Permanent, General, Recipients, true, false,
		"The recipient's host says that the mailbox does not exist."}
	noMailboxAt = Class{Permanent, NoEmail, Recipients, true, false, "The recipient's host does not know the address."}
	disabled    = Class{Permanent, General, Recipients, true, false, "The mailbox is disabled and takes no more mail."}
	moved       = Class{Permanent, General, Recipients, true, false, "The mailbox has moved and left no new address."}
	badAddress  = Class{Permanent, General, Recipients, true, false,
		"The recipient's host does not take this for an address."}
	nullMX = Class{Permanent, General, Recipients, true, false,
		"The recipient's domain declares that it takes no mail."}
	noDomain = Class{Permanent, General, Recipients, false, false,
		"The recipient's domain does not exist, or no host takes mail for it."}
	unclearTo = Class{Permanent, General, Recipients, false, false,
		"The recipient's host cannot tell which mailbox is meant."}
	full     = Class{Transient, MailboxFull, Recipients, false, false, "The recipient's mailbox is full."}
	tooLarge = Class{Transient, MessageTooLarge, Ours, false, false,
		"The message is larger than the recipient's host accepts."}
	content = Class{Transient, ContentRejected, Ours, false, false,
		"The recipient's host refuses the content of the message."}
	attachment = Class{Transient, AttachmentRejected, Ours, false, false,
		"The recipient's host refuses an attachment of the message."}
	unauthentic = Class{Transient, General, Ours, false, false,
		"The recipient's host does not find the message authenticated. Check the SPF, DKIM and DMARC records of the " +
			"sending domain."}
	reputation = Class{Transient, General, Ours, false, true,
		"The recipient's host blocks the sending address or domain for its reputation."}
	policy = Class{Transient, General, Hosts, false, false,
		"The recipient's host refuses the message by a rule of its own."}
	badSender = Class{Transient, General, Ours, false, false,
		"The recipient's host does not accept the sender's address or domain."}
	identity = Class{Transient, General, Ours, false, false,
		"The recipient's host does not accept the name or the reverse DNS of the sending host."}
	rate = Class{Transient, General, Ours, false, true,
		"The recipient's host limits how much mail it accepts, and the limit was reached."}
	busyBox = Class{Transient, General, Recipients, false, false,
		"The recipient is getting more mail than the host allows at present."}
	greylist = Class{Transient, General, Hosts, false, false,
		"The recipient's host takes mail from new senders only at a later try."}
	relaying = Class{Transient, General, Hosts, false, false,
		"The host does not consider itself responsible for the recipient's domain."}
	loop = Class{Permanent, General, Hosts, false, false,
		"The mail for the recipient's domain goes round in a circle."}
	routing = Class{Transient, General, Hosts, false, false,
		"The recipient's host cannot be reached, or cannot pass the message on."}
	nowhere = Class{Permanent, General, Hosts, false, false,
		"The recipient's domain names no host that can be reached from here."}
	insecure = Class{Transient, General, Hosts, false, false,
		"The sending domain demands a verified TLS connection, and the recipient's host does not provide it."}
	international = Class{Transient, General, Hosts, false, false,
		"The recipient's host does not accept international addresses."}
	protocol = Class{Transient, General, Ours, false, false,
		"The recipient's host does not accept the way in which the message was offered."}
	credentials = Class{Transient, General, Ours, false, false,
		"The relay does not accept this server's user name and password."}
	trouble = Class{Transient, General, Hosts, false, false, "The recipient's host has trouble of its own."}
	unclear = Class{Undetermined, Undetermined, Hosts, false, false,
		"The recipient's host refuses the message and does not say why in a way that is understood."}
)

// byEnhanced maps enhanced status codes, without their first digit, to classes. The codes come from RFCs 3463, 4954,
// 7372, 7505 and 8616, and from the IANA registry. Codes whose last number is 500 or more come from Microsoft. Codes
// that hosts use for many different causes are omitted, because the text of the reply is more specific.
var byEnhanced = map[string]Class{
	"1.1": noMailbox, "1.2": noDomain, "1.3": badAddress, "1.4": unclearTo, "1.5": unclear, "1.6": moved, "1.7": badSender,
	"1.8": badSender, "1.9": protocol, "1.10": nullMX,
	"2.1": disabled, "2.2": full, "2.3": tooLarge, "2.4": unclear,
	"3.1": trouble, "3.2": trouble, "3.3": trouble, "3.4": tooLarge, "3.5": trouble, "3.6": trouble,
	"4.0": routing, "4.1": routing, "4.2": routing, "4.3": routing, "4.4": nowhere, "4.5": rate, "4.6": loop,
	"4.7": routing,
	"4.8": routing, "4.14": loop, "4.310": routing, "4.312": routing, "4.316": routing,
	"5.1": protocol, "5.2": protocol, "5.3": protocol, "5.4": protocol, "5.5": protocol, "5.6": protocol,
	"6.0": content, "6.1": content, "6.2": content, "6.3": protocol, "6.4": content, "6.5": content, "6.6": content,
	"6.7": international, "6.8": international, "6.9": international, "6.10": international,
	"7.2": policy, "7.3": policy, "7.4": insecure, "7.5": policy, "7.6": policy, "7.7": content, "7.8": credentials,
	"7.9": credentials, "7.10": insecure, "7.11": insecure, "7.12": credentials, "7.13": credentials, "7.14": credentials,
	"7.15": rate, "7.16": policy, "7.17": policy, "7.18": policy, "7.19": policy, "7.20": unauthentic, "7.21": unauthentic,
	"7.22": unauthentic, "7.23": unauthentic, "7.24": unauthentic, "7.25": identity, "7.26": unauthentic,
	"7.27": badSender,
	"7.28": rate, "7.29": unauthentic, "7.30": unauthentic,
	"7.40": unauthentic, "7.57": credentials, "7.64": relaying, "7.124": policy, "7.133": policy, "7.134": policy,
	"7.136": policy,
	"7.193": policy, "7.232": rate, "7.233": rate, "7.501": reputation, "7.502": reputation, "7.503": reputation,
	"7.508": rate,
	"7.509": unauthentic, "7.510": reputation, "7.511": reputation, "7.512": protocol, "7.513": policy,
	"7.515": unauthentic,
	"7.520": policy, "7.703": reputation, "7.705": rate, "7.708": reputation, "7.750": reputation,
}

// marks are phrases that identify a cause regardless of the code that precedes them.
var marks = []textRule{
	{full, []string{"has too many messages on the server"}},
	{rate, []string{"[tss04]", "[ts01]", "[ts02]", "[ts03]", "rp-00", "(s775)", "(s77719)", "unusual rate of unsolicited",
		"rate that prevents",
		"unexpected volume", "throttl", "ratelimit", "rate limit", "too many connections", "too many concurrent",
		"too many sessions", "too many messages",
		"too many mails", "too many emails", "connection limit", "connection rate", "message rate", "max connections"}},
	{busyBox, []string{"receiving mail too quickly", "is receiving mail at a rate"}},
	{reputation, []string{"(s3140)", "(s3150)", "as(4810)", "as(48", "[ph01]", "[bl21]", "[bl23]", "[iprb]", "[hm08]",
		"[cs01]",
		"spamhaus", "spamcop", "sorbs", "barracuda", "proofpoint.com", "senderscore", "uceprotect", "invaluement", "abusix",
		"mailspike",
		"blocklist", "block list", "blacklist", "black list", "denylist", "dnsbl", "blocked using", "reputation"}},
	{greylist, []string{"greylist", "graylist", "grey-list", "gray-list", "grey list", "gray list", "grey-listed"}},
}

// texts lists phrases that determine the class if the code does not. The first match wins.
var texts = []textRule{
	{attachment, []string{"attachment", "file type", "potential security issue", "banned file", "executable", "macro"}},
	{badSender, []string{"sender address rejected", "sender rejected", "sender denied", "sender domain",
		"domain of sender", "invalid sender",
		"sender verif", "sender not", "sender is not", "sender unknown", "envelope sender", "return-path", "return path",
		"from address",
		"callout"}},
	{unauthentic, []string{"dmarc", "spf", "dkim", "unauthenticated", "not authenticated", "authentication",
		"sender policy"}},
	{identity, []string{"reverse dns", "rdns", " ptr", "helo name", "helo command", "helo:", "ehlo name", "invalid helo",
		"invalid ehlo", "bad helo", "reverse host", "fcrdns", "hostname"}},
	{full, []string{"over quota", "overquota", "over-quota", "quota exceeded", "exceeded its quota", "exceed quota",
		"quota", "mailbox full",
		"mailbox is full", "mail box full", "inbox is full", "out of storage", "storage allocation", "not enough space",
		"mailbox size"}},
	{tooLarge, []string{"too large", "too big", "size limit", "maximum size", "message size", "exceeds size",
		"exceeds maximum", "length exceeds",
		"maximum message", "max message"}},
	{content, []string{"spam", "unsolicited", "virus", "malware", "infected", "phish", "content", "junk", "bulk mail",
		"suspicious", "score",
		"url in", "bad header", "message looks", "looks like"}},
	{rate, []string{"too many", "too fast", "too quickly", "exceeded the", "unusual rate", "try again slower",
		"slow down"}},
	{noMailbox, []string{"not listed in domino", "not listed in public name"}},
	{reputation, []string{"blocked", "banned", "listed in", "listed at", "listed by", "bad ip", "ip address", "abuse",
		"rbl",
		"refused your ip", "client host rejected", "refused connection from"}},
	{disabled, []string{"disabled", "inactive", "deactivated", "suspended", "account closed", "has been closed",
		"no longer active",
		"no longer in use", "no longer accepts mail", "not active", "discontinued", "no longer available",
		"no longer exists", "account expired",
		"mailbox is closed"}},
	{noMailbox, []string{"user unknown", "unknown user", "no such user", "no such recipient", "no such mailbox",
		"no such address",
		"no such account", "no such person", "no such local", "no mailbox", "not exist", "doesn't exist",
		"recipient not found", "recipient unknown",
		"unknown recipient", "user not found", "mailbox not found", "mailbox unavailable", "mailbox unknown",
		"unknown mailbox",
		"invalid recipient", "invalid mailbox", "invalid user", "invalid address", "not a valid mailbox",
		"not a valid recipient",
		"not a valid user", "account not found", "address unknown", "unknown address", "unknown local",
		"unknown or illegal alias", "doesn't have a",
		"does not have a", "undeliverable address", "unrouteable address", "unroutable address", "not known",
		"no longer valid",
		"unknown in virtual", "unknown in local", "unknown in relay", "no account",
		"recipient address rejected: access denied", "addressee unknown",
		"not our customer", "address not found", "recipient does not", "not found"}},
	{relaying, []string{"relay", "not local", "not hosted here", "not responsible"}},
	{noDomain, []string{"domain not found", "host unknown", "unknown host", "domain does not accept", "no mx",
		"invalid domain", "bad destination host"}},
	{insecure, []string{"starttls", "tls required", "encryption"}},
	{loop, []string{"loop", "too many hops", "hop count"}},
	{protocol, []string{"syntax", "bad sequence", "command not", "unrecognized", "parameter", "bare lf", "line too long",
		"line length", "duplicate header"}},
	{policy, []string{"policy", "not allowed", "not permitted", "denied", "prohibited", "administrative", "rejected by",
		"not accept mail from",
		"not authorized", "unauthorized", "security", "restrict", "permission", "rejected for"}},
	{trouble, []string{"try again", "try later", "temporar", "local problem", "internal error", "system", "resources",
		"unavailable", "busy", "overload",
		"maintenance", "local error", "configuration"}},
}

type textRule struct {
	is   Class
	when []string // phrases in lower case, any of which is enough
}
