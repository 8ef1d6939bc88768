package grants

import "github.com/postrider/postrider/internal/accounts/teams"

// DescribeScopes returns a sentence for each scope, the most important first. limited selects the sentences for an app
// with limits, which may do less with some scopes.
func DescribeScopes(set teams.Scopes, limited bool) (all []string) {
	for _, x := range scopeDescriptions {
		switch {
		case !set.Has(x.scope):
		case limited && x.limited != "":
			all = append(all, x.limited)
		default:
			all = append(all, x.words)
		}
	}
	return all
}

// DescribeSending returns the ways in which an app with the scopes can cause emails by itself; nil if it cannot. It
// leaves out emails that need an automation of a person: the sentences of those scopes say so.
func DescribeSending(set teams.Scopes) (all []string) {
	for _, x := range sendingDescriptions {
		if set.Has(x.scope) {
			all = append(all, x.words)
		}
	}
	return all
}

// sendingDescriptions are the scopes by which an app causes emails that nobody else requested.
var sendingDescriptions = []struct {
	scope teams.Scope
	words string
}{
	{teams.EmailsSend, "by sending them, and broadcasts"},
	{teams.BroadcastsWrite, "by resuming broadcasts, and by choosing the variant with which one goes on"},
	{teams.AutomationsWrite, "by automations that it makes or changes"},
	{teams.EventsSend, "by events that start automations"},
}

// scopeDescriptions describes each scope, and what remains of it for an app with limits if that is less.
var scopeDescriptions = []struct {
	scope          teams.Scope
	words, limited string
}{
	{teams.EmailsSend, "Send emails and broadcasts in the name of the team",
		"Send emails in the name of the team, within its limits, and no broadcasts"},
	{teams.EmailsRead, "Read the emails that the team has sent, with all they say", ""},
	{teams.ReceivingRead, "Read the emails that the team has received", ""},
	{teams.EmailsWrite, "Reschedule and cancel emails", ""},
	{teams.EmailsShare, "Make links by which anybody can read an email", ""},
	{teams.KeysRead, "See which API keys there are, but not the keys themselves", ""},
	{teams.KeysWrite, "Make and delete API keys, which go on working without this program", ""},
	{teams.DomainsRead, "See the domains of the team", ""},
	{teams.DomainsWrite, "Add, change and delete domains", ""},
	{teams.WebhooksRead, "See webhooks and the events that they tell of", ""},
	{teams.WebhooksWrite, "Add, change and delete webhooks, and read their secrets", ""},
	{teams.ContactsRead, "Read contacts and what is noted of them", ""},
	{teams.ContactsWrite, "Add, change, import and delete contacts, for which automations of the team may send emails",
		""},
	{teams.SegmentsRead, "See segments of contacts", ""},
	{teams.SegmentsWrite, "Change segments of contacts, to which broadcasts of the team go", ""},
	{teams.TopicsRead, "See the topics that contacts can subscribe to", ""},
	{teams.TopicsWrite, "Change the topics that contacts can subscribe to", ""},
	{teams.BroadcastsRead, "Read broadcasts and their results", ""},
	{teams.BroadcastsWrite,
		"Write, change, pause and delete broadcasts, resume paused ones, and choose the variant with which one goes on",
		"Write, change, pause and delete broadcasts, but neither send nor resume them"},
	{teams.TemplatesRead, "Read templates", ""},
	{teams.TemplatesWrite, "Write, publish and delete templates, also those that automations send", ""},
	{teams.AutomationsRead, "See automations and their runs", ""},
	{teams.AutomationsWrite, "Make and change automations, which send emails by themselves", ""},
	{teams.EventsRead, "See custom events", ""},
	{teams.EventsWrite, "Change custom events", ""},
	{teams.EventsSend, "Send custom events, which start automations that send emails", ""},
	{teams.SuppressionsRead, "See which addresses are not mailed", ""},
	{teams.SuppressionsWrite, "Change which addresses are not mailed", ""},
	{teams.LogsRead, "Read the log of API requests", ""},
	{teams.UsageRead, "See how much the team has used", ""},
	{teams.MembersRead, "See the people of the team", ""},
	{teams.MembersWrite, "Invite people, by email, and remove them, but no owners", ""},
	{teams.AuditRead, "Read the log of what people and programs did", ""},
	{teams.GrantsRead, "See which programs may act for the team", ""},
	{teams.GrantsWrite, "Revoke what programs may do", ""},
	{teams.ApprovalsRequest, "Ask whether an email may go, which a person decides", ""},
	{teams.ApprovalsRead, "See what waits for approval", ""},
	{teams.ApprovalsWrite, "Approve what other programs want to send", ""},
}
