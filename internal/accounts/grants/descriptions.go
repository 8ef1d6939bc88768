package grants

import "github.com/postrider/postrider/internal/accounts/teams"

// DescribeScopes returns a sentence for each scope, with the most important scopes first. For an app with sending
// limits, some sentences differ, because such an app may do less with some scopes.
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

// DescribeSending describes how an app with these scopes can send emails without human action, or returns nil if it
// cannot. DescribeSending leaves out emails that an app can cause to be sent only through an automation that a person
// created. The sentences that [DescribeScopes] returns mention emails sent by automations that a person created.
func DescribeSending(set teams.Scopes) (all []string) {
	for _, x := range sendingDescriptions {
		if set.Has(x.scope) {
			all = append(all, x.words)
		}
	}
	return all
}

// sendingDescriptions lists the scopes that let an app send emails, directly or indirectly, without human action.
var sendingDescriptions = []struct {
	scope teams.Scope
	words string
}{
	{teams.EmailsSend, "by sending them, and broadcasts"},
	{teams.BroadcastsWrite, "by resuming broadcasts, and by choosing the variant with which one goes on"},
	{teams.AutomationsWrite, "by automations that it makes or changes"},
	{teams.EventsSend, "by events that start automations"},
}

// scopeDescriptions describes each scope. A scope that permits less when the app has sending limits has a second
// description for such apps.
var scopeDescriptions = []struct {
	scope          teams.Scope
	words, limited string
}{
	{teams.EmailsSend, "Send emails and broadcasts in the name of the team",
		"Send emails in the name of the team, within its limits, and no broadcasts"},
	{teams.EmailsRead, "Read the emails that the team has sent, with their content", ""},
	{teams.ReceivingRead, "Read the emails that the team has received", ""},
	{teams.EmailsWrite, "Reschedule and cancel emails", ""},
	{teams.EmailsShare, "Create public links to emails", ""},
	{teams.KeysRead, "List API keys, but not read the keys themselves", ""},
	{teams.KeysWrite, "Create and delete API keys, which keep working without this app", ""},
	{teams.DomainsRead, "See the domains of the team", ""},
	{teams.DomainsWrite, "Add, change and delete domains", ""},
	{teams.WebhooksRead, "See webhooks and the events that they receive", ""},
	{teams.WebhooksWrite, "Add, change and delete webhooks, and read their secrets", ""},
	{teams.ContactsRead, "Read contacts and their properties", ""},
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
	{teams.SuppressionsRead, "See suppressed addresses", ""},
	{teams.SuppressionsWrite, "Change suppressed addresses", ""},
	{teams.LogsRead, "Read the log of API requests, with the content of those requests that this app itself may make", ""},
	{teams.UsageRead, "See the usage of the team", ""},
	{teams.MembersRead, "See the members of the team", ""},
	{teams.MembersWrite, "Invite and remove members, but no owners", ""},
	{teams.AuditRead, "Read the audit log", ""},
	{teams.GrantsRead, "See the connected apps of the team", ""},
	{teams.GrantsWrite, "Disconnect connected apps", ""},
	{teams.ApprovalsRequest, "Request approval of emails by a person", ""},
	{teams.ApprovalsRead, "See emails that wait for approval", ""},
	{teams.ApprovalsWrite, "Approve emails of other connected apps", ""},
}
