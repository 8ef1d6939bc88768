package explain

// Advice names what to do; see [Advice.Steps].
type Advice string

const (
	Wait              Advice = "wait"
	RemoveAddress     Advice = "remove_address"
	CheckAddress      Advice = "check_address"
	AskForSpace       Advice = "ask_for_space"
	SendLessOften     Advice = "send_less_often"
	ShrinkMessage     Advice = "shrink_message"
	ChangeContent     Advice = "change_content"
	ChangeLinks       Advice = "change_links"
	ChangeAttachment  Advice = "change_attachment"
	FixAuthentication Advice = "fix_authentication"
	FixSenderDomain   Advice = "fix_sender_domain"
	FixReverseDNS     Advice = "fix_reverse_dns"
	RequestDelisting  Advice = "request_delisting"
	ImproveReputation Advice = "improve_reputation"
	AskToAllow        Advice = "ask_to_allow"
	TellRecipient     Advice = "tell_recipient"
	CheckTLS          Advice = "check_tls"
	TellDomain        Advice = "tell_domain"
	UseASCII          Advice = "use_ascii"
	AskOperator       Advice = "ask_operator"
	FixRelay          Advice = "fix_relay"
	CheckRelay        Advice = "check_relay"
	AskIfArrived      Advice = "ask_if_arrived"
	VerifyDomain      Advice = "verify_domain"
	LiftSuppression   Advice = "lift_suppression"
	SendAgain         Advice = "send_again"
	RespectChoice     Advice = "respect_choice"
	ResumeBroadcast   Advice = "resume_broadcast"
	WaitForQuota      Advice = "wait_for_quota"
	ChangeRule        Advice = "change_rule"
	ReadReceived      Advice = "read_received"
	NothingToDo       Advice = "nothing"
)

// adviceSteps holds at most three steps for each advice.
var adviceSteps = map[Advice][]string{
	Wait: {"Wait. Postrider tries again by itself."},
	RemoveAddress: {"Remove the address from your lists, or correct it.",
		"Ask the recipient for a working address by another way."},
	CheckAddress: {"Check the spelling of the address, especially the part after the @.",
		"If it is right, ask the recipient by another way whether the domain takes email."},
	AskForSpace: {"Tell the recipient by another way that the mailbox is full.",
		"Send the email again after there is space."},
	SendLessOften: {"Send fewer emails in the same time, and spread large sendings over hours.",
		"Send first to recipients who opened or clicked recently."},
	ShrinkMessage: {"Link to large files instead of attaching them.", "Send the email again."},
	ChangeContent: {"Run the checks of the email, and correct what they report.",
		"Remove what resembles spam: shortened links, texts in images, words of advertising.",
		"Send the email again."},
	ChangeLinks: {"Look up the domains of the links in the email at the block list that the reply names.",
		"Remove the listed links, or have the domain removed from the list.", "Send the email again."},
	ChangeAttachment: {"Remove the attachment, or send it in another format.",
		"Link to the file instead of attaching it."},
	FixAuthentication: {"Open the sending domain, and publish each record that is not verified.",
		"Check that the address in From belongs to this domain, so that SPF or DKIM is aligned.",
		"Publish a DMARC record of at least \"v=DMARC1; p=none\"."},
	FixSenderDomain: {"Check that the domain of the sender's address has MX or address records in the DNS.",
		"Check that its return-path host has the records that the domain's page lists."},
	FixReverseDNS: {"Set the PTR record of the source address to the name in EHLO.",
		"Check that this name has an address record with the same address."},
	RequestDelisting: {"Look up the source address at the list or page that the reply names.",
		"Find and stop the mail that caused the listing.", "Request removal from the list."},
	ImproveReputation: {"Stop sending to addresses that bounced, complained or never opened.",
		"Send fewer emails until the provider accepts them again.",
		"Check the domain at the provider's postmaster page."},
	AskToAllow: {"Ask the recipient by another way to have your domain allowed on their mail server.",
		"Give them the host's reply, which names the rule."},
	TellRecipient: {"Tell the recipient by another way that their mail server does not work.",
		"Give them the host's reply.", "Send the email again after it is repaired."},
	CheckTLS: {"Ask the recipient's mail provider to offer TLS with a valid certificate.",
		"Or set the domain's `tls` to `opportunistic`, if encryption is not mandatory for this email."},
	TellDomain: {"Tell the owner of the recipient's domain by another way that mail waits, with the reply and the problem of " +
		"the certificate.", "Ask the recipient for another address, if the email cannot wait."},
	UseASCII:    {"Use an address without special letters, for the sender and for the recipient."},
	AskOperator: {"Give this email's id to the operator of this installation, with the host's reply."},
	FixRelay:    {"Check the settings `relay_username` and `relay_password`, and the account at the relay."},
	CheckRelay: {"Check that the relay runs, and that the settings `relay_addr` and `relay_tls` are right.",
		"Check the relay's own log if it answers.", "Wait for the next try, or send the email again if it bounced."},
	AskIfArrived: {"Ask the recipient whether the email arrived before you send it again."},
	VerifyDomain: {"Open the sending domain, and publish the records that are missing.", "Check the domain again."},
	LiftSuppression: {"Find out why the address was suppressed.",
		"If the recipient wants your mail, remove the suppression, and send the email again."},
	SendAgain:       {"Correct the cause that the reason names.", "Send the email again."},
	RespectChoice:   {"Do not send again: the recipient has chosen so."},
	ResumeBroadcast: {"Open the broadcast, and read why it is paused.", "Resume the broadcast, or cancel it."},
	WaitForQuota: {"Send the email again after the day or month of the quota has ended, in UTC.",
		"Or ask the operator of this installation for a higher quota."},
	ChangeRule: {"Open the forwarding rules of the domain.",
		"Delete the rule that forwards to this address, or replace it by a rule with a working address."},
	ReadReceived: {"Read the message on the page of received mail, which stores all mail that rules forward.",
		"If many messages of the rule fail, forward to another address."},
	NothingToDo: {},
}

// forwardedAdvice replaces advice for the author of an email. A team whose rule forwarded an email can neither change
// nor repeat it, and has no list with the address.
var forwardedAdvice = map[Advice]action{
	RemoveAddress: {You, ChangeRule}, CheckAddress: {You, ChangeRule}, LiftSuppression: {You, ChangeRule},
	AskForSpace: {You, ReadReceived}, SendLessOften: {You, ReadReceived}, ShrinkMessage: {You, ReadReceived},
	ChangeContent: {You, ReadReceived}, ChangeLinks: {You, ReadReceived}, ChangeAttachment: {You, ReadReceived},
	FixAuthentication: {You, ReadReceived}, UseASCII: {You, ReadReceived}, SendAgain: {You, ReadReceived},
	AskToAllow: {You, ReadReceived}, TellRecipient: {You, ReadReceived}, AskIfArrived: {You, ReadReceived},
}

// Steps returns what to do, in at most three sentences.
func (a Advice) Steps() []string { return adviceSteps[a] }

// action says who must do what.
type action struct {
	who    Actor
	advice Advice
}

// consequences holds what follows from each class: what it blames, the action while Postrider tries again (later), the
// action after the last try (now), and the sentence for users.
var consequences = map[Class]struct {
	blames     Identity
	later, now action
	says       string
}{
	UnknownAddress: {BlamesRecipient, action{You, CheckAddress}, action{You, RemoveAddress},
		"The recipient's mail server does not know the address."},
	MailboxDisabled: {BlamesRecipient, action{You, CheckAddress}, action{You, RemoveAddress},
		"The recipient's mailbox is disabled or has moved."},
	InvalidDomain: {BlamesRecipient, action{You, CheckAddress}, action{You, CheckAddress},
		"The domain of the address does not exist, or takes no mail."},
	MailboxFull: {BlamesRecipient, action{Recipient, AskForSpace}, action{Recipient, AskForSpace},
		"The recipient's mailbox is full."},
	RecipientBusy: {BlamesRecipient, action{Nobody, Wait}, action{You, SendLessOften},
		"The recipient gets more mail than the provider allows for one mailbox."},
	Size: {BlamesMessage, action{You, ShrinkMessage}, action{You, ShrinkMessage},
		"The message is larger than the recipient's mail server accepts."},
	Content: {BlamesMessage, action{You, ChangeContent}, action{You, ChangeContent},
		"The recipient's mail server takes the content for spam, or refuses it for another reason."},
	Attachment: {BlamesMessage, action{You, ChangeAttachment}, action{You, ChangeAttachment},
		"The recipient's mail server refuses an attachment."},
	Authentication: {BlamesDomain, action{DomainOwner, FixAuthentication}, action{DomainOwner, FixAuthentication},
		"The recipient's mail server could not confirm that the email comes from your domain (SPF, DKIM or DMARC)."},
	Reputation: {BlamesSource, action{Operator, RequestDelisting}, action{Operator, RequestDelisting},
		"The recipient's mail server blocks the IP address that sent the email, because of its reputation."},
	RateLimit: {BlamesSource, action{Nobody, Wait}, action{Operator, SendLessOften},
		"The recipient's mail server limits how much mail it accepts, and the limit was reached."},
	Policy: {BlamesHost, action{Nobody, Wait}, action{Recipient, AskToAllow},
		"The recipient's mail server refuses the email by a rule of its own."},
	SenderAddress: {BlamesDomain, action{DomainOwner, FixSenderDomain}, action{DomainOwner, FixSenderDomain},
		"The recipient's mail server does not accept the sender's address or domain."},
	HostIdentity: {BlamesSource, action{Operator, FixReverseDNS}, action{Operator, FixReverseDNS},
		"The recipient's mail server does not accept the name or the reverse DNS of the sending server."},
	Greylisting: {BlamesNothing, action{Nobody, Wait}, action{Provider, TellRecipient},
		"The recipient's mail server takes mail from a new sender only at a later try (greylisting)."},
	Relaying: {BlamesHost, action{Provider, TellRecipient}, action{Provider, TellRecipient},
		"The mail server that the domain names does not take mail for it."},
	Loop: {BlamesHost, action{Provider, TellRecipient}, action{Provider, TellRecipient},
		"Mail for this address goes round in a circle."},
	Unreachable: {BlamesHost, action{Nobody, Wait}, action{Provider, TellRecipient},
		"The recipient's mail server cannot be reached, or broke off the conversation."},
	TLS: {BlamesHost, action{You, CheckTLS}, action{You, CheckTLS},
		"The sending domain demands verified encryption, and the recipient's mail server does not provide it."},
	DNS: {BlamesHost, action{Nobody, Wait}, action{Provider, TellRecipient},
		"The name servers of the recipient's domain do not answer."},
	International: {BlamesHost, action{You, UseASCII}, action{You, UseASCII},
		"The recipient's mail server does not accept international addresses."},
	Protocol: {BlamesServer, action{Operator, AskOperator}, action{Operator, AskOperator},
		"The recipient's mail server does not accept the way in which the message was offered."},
	Credentials: {BlamesServer, action{Operator, FixRelay}, action{Operator, FixRelay},
		"The mail server demands a user name and password that this installation does not have."},
	HostTrouble: {BlamesHost, action{Nobody, Wait}, action{Provider, TellRecipient},
		"The recipient's mail server has trouble of its own."},
	NoAnswer: {BlamesHost, action{Nobody, Wait}, action{You, AskIfArrived},
		"The host took the whole message and did not say whether it accepted it. A copy may have arrived."},
	OwnLimit: {BlamesHost, action{Nobody, Wait}, action{Provider, TellRecipient},
		"The host failed a short time before, so Postrider did not try it again so soon."},
	Unclear: {BlamesUnknown, action{Nobody, Wait}, action{Recipient, AskToAllow},
		"The recipient's mail server refuses the email and does not say why in a way that is understood."},
	Captured: {BlamesNothing, action{Nobody, NothingToDo}, action{Nobody, NothingToDo},
		"The email was captured by this installation. No mail server has seen it."},
	Simulated: {BlamesNothing, action{Nobody, NothingToDo}, action{Nobody, NothingToDo},
		"The address is a test address, whose outcome Postrider simulates. No mail server has seen the email."},
	Accepted: {BlamesNothing, action{Nobody, NothingToDo}, action{Nobody, NothingToDo},
		"The mail server accepted the email."},
}
