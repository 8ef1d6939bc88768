package report

// classNames holds a name for each class, by its sentence, which no two classes share.
var classNames = map[string]string{
	noMailbox.Say: "unknown_address", noMailboxAt.Say: "unknown_address", badAddress.Say: "unknown_address",
	unclearTo.Say: "unknown_address", disabled.Say: "mailbox_disabled", moved.Say: "mailbox_disabled",
	nullMX.Say: "invalid_domain", noDomain.Say: "invalid_domain", nowhere.Say: "invalid_domain",
	full.Say: "mailbox_full", busyBox.Say: "recipient_busy",
	tooLarge.Say: "size", content.Say: "content", attachment.Say: "attachment",
	unauthentic.Say: "authentication", reputation.Say: "reputation", rate.Say: "rate_limit", policy.Say: "policy",
	badSender.Say: "sender_address", identity.Say: "host_identity", greylist.Say: "greylisting",
	relaying.Say: "relaying", loop.Say: "loop", routing.Say: "unreachable", insecure.Say: "tls",
	international.Say: "international", protocol.Say: "protocol", credentials.Say: "credentials",
	trouble.Say: "host_trouble",
}

// Name returns the name of the class's cause, such as "mailbox_full". Several classes may have the same name. Name
// returns "unclear" for a class whose cause is not known, and for a class that Expired has changed.
func (c Class) Name() string {
	if name, ok := classNames[c.Say]; ok {
		return name
	}
	return "unclear"
}
