package report

import "testing"

// If the text of a host's reply is missing or vague, the code determines the class. Text about the recipient is ignored
// if the host has not yet received the recipient's address.
func TestClassByCode(t *testing.T) {
	const unknown, spam = "no such user here", "rejected as spam"
	for _, c := range []struct {
		code     int
		enhanced string
		scope    Scope
		text     string
		want     Class
	}{
		{521, "", ScopeSession, "", noDomain}, {556, "", ScopeRecipient, "", nullMX}, {556, "5.1.10", ScopeRecipient, "",
			nullMX},
		{530, "", ScopeSession, "", credentials}, {534, "", ScopeSession, "", credentials}, {535, "", ScopeSession, "",
			credentials},
		{538, "", ScopeSession, "", credentials},
		{500, "", ScopeRecipient, "", protocol}, {501, "", ScopeRecipient, unknown, noMailbox},
		{501, "", ScopeRecipient, spam, protocol},
		{503, "", ScopeSender, unknown, protocol}, {504, "", ScopeMessage, unknown, protocol}, {555, "", ScopeSession, "",
			protocol},
		{550, "", ScopeRecipient, unknown, noMailbox}, {550, "", ScopeMessage, unknown, noMailbox},
		{550, "", ScopeSender, unknown, policy},
		{550, "", ScopeSession, unknown, policy}, {550, "", ScopeSession, spam, content}, {550, "", ScopeRecipient, "",
			unclear},
		{551, "", ScopeRecipient, "", relaying}, {552, "", ScopeRecipient, "", full}, {541, "", ScopeRecipient, "", policy},
		{571, "", ScopeRecipient, "", policy}, {599, "", ScopeRecipient, "", unclear},
		{421, "", ScopeSession, "", trouble}, {450, "", ScopeRecipient, "", trouble}, {451, "", ScopeMessage, "", trouble},
		{452, "", ScopeRecipient, "", trouble}, {454, "", ScopeRecipient, "", trouble},
		{550, "5.1.10", ScopeRecipient, "", noMailbox}, {550, "5.1.10", ScopeRecipient, "the domain has a null mx", nullMX},
		{550, "5.7.606", ScopeRecipient, "", reputation}, {550, "5.7.649", ScopeRecipient, "", reputation},
		{550, "5.7.6", ScopeRecipient, "", policy}, {550, "5.7.60", ScopeRecipient, "", policy},
		{550, "5.7.999", ScopeRecipient, "", policy},
		{550, "5.7.999", ScopeRecipient, spam, content}, {550, "5.7.999", ScopeRecipient, unknown, policy},
		{550, "5.4.1", ScopeRecipient, "recipient address rejected: access denied", noMailboxAt},
		{550, "5.", ScopeRecipient, "", unclear},
	} {
		if got := (Refusal{Code: c.code, Enhanced: c.enhanced, Scope: c.scope, Text: c.text}).byCode(c.text); got != c.want {
			t.Errorf("%d %s %q, scope %d: %q, want %q", c.code, c.enhanced, c.text, c.scope, got.Say, c.want.Say)
		}
	}
}
