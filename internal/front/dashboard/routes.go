package dashboard

import (
	"github.com/postrider/postrider/internal/accounts/savedfilters"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
)

// Route is a page or form, for tests and measurements that try all of them.
type Route struct {
	Pattern string
	Scope   teams.Scope // what the visitor's role must allow; 0 for every member

	// Stream is whether the response is no page but all that a list has, or events until the client closes the
	// connection.
	Stream bool
}

// Routes returns all pages and forms, in the order of the table.
func Routes() (all []Route) {
	for _, r := range (&Pages{}).routes() {
		all = append(all, Route{r.pattern, r.scope, r.stream})
	}
	return all
}

// routes is the table of all pages and forms. Each has a test that tries it with every role (roles_test.go).
func (p *Pages) routes() []route {
	return []route{
		{pattern: "GET /app/{$}", whileSuspended: true,
			serve: func(c *call) error { return web.Redirect(c.w, c.r, "/app/emails") }},
		{pattern: "GET /app", whileSuspended: true,
			serve: func(c *call) error { return web.Redirect(c.w, c.r, "/app/emails") }},
		{pattern: "GET /app/palette", whileSuspended: true, serve: (*call).palette},
		{pattern: "GET /app/search", searches: true, whileSuspended: true, serve: (*call).search},
		{pattern: "GET /app/live", scope: teams.EmailsRead, whileSuspended: true, stream: true, serve: (*call).liveStream},

		{pattern: "GET /app/emails", searches: true, scope: teams.EmailsRead, whileSuspended: true, serve: (*call).emails},
		{pattern: "GET /app/emails/new", scope: teams.EmailsSend, serve: (*call).showNewEmail},
		{pattern: "POST /app/emails/new", scope: teams.EmailsSend, large: true, serve: (*call).sendNewEmail},
		{pattern: "POST /app/emails/filters", scope: teams.EmailsRead, own: true, serve: saveFilter(savedfilters.Emails)},
		{pattern: "POST /app/emails/filters/{id}/delete", scope: teams.EmailsRead, own: true,
			serve: deleteFilter(savedfilters.Emails)},
		{pattern: "GET /app/emails/{id}", scope: teams.EmailsRead, whileSuspended: true, serve: (*call).email},
		{pattern: "GET /app/emails/{id}/newer", scope: teams.EmailsRead, whileSuspended: true, serve: (*call).newerEmail},
		{pattern: "GET /app/emails/{id}/older", scope: teams.EmailsRead, whileSuspended: true, serve: (*call).olderEmail},
		{pattern: "GET /app/emails/{id}/html", scope: teams.EmailsRead, whileSuspended: true, frame: true,
			serve: (*call).emailHTML},
		{pattern: "GET /app/emails/{id}/raw", scope: teams.EmailsRead, whileSuspended: true, serve: (*call).emailRaw},
		{pattern: "GET /app/emails/{id}/files/{file}", scope: teams.EmailsRead, whileSuspended: true,
			serve: (*call).emailFile},
		{pattern: "POST /app/emails/{id}/cancel", scope: teams.EmailsWrite, action: "email.cancelled", whileSuspended: true,
			serve: (*call).cancelEmail},
		{pattern: "POST /app/emails/{id}/reschedule", scope: teams.EmailsWrite, action: "email.rescheduled",
			serve: (*call).rescheduleEmail},
		{pattern: "POST /app/emails/{id}/share", scope: teams.EmailsShare, action: "email.shared", serve: (*call).shareEmail},

		{pattern: "GET /app/domains", scope: teams.DomainsRead, serve: (*call).domains},
		{pattern: "GET /app/domains/new", scope: teams.DomainsWrite, serve: (*call).showNewDomain},
		{pattern: "POST /app/domains/new", scope: teams.DomainsWrite, action: "domain.created", serve: (*call).addDomain},
		{pattern: "POST /app/domains/claim", scope: teams.DomainsWrite, action: "domain.claimed", serve: (*call).claimDomain},
		{pattern: "GET /app/domains/{id}", scope: teams.DomainsRead, serve: (*call).domain},
		{pattern: "GET /app/domains/{id}/settings", scope: teams.DomainsRead, serve: (*call).domainSettings},
		{pattern: "GET /app/domains/{id}/reports", scope: teams.DomainsRead, serve: (*call).domainReports},
		{pattern: "GET /app/domains/{id}/reports/{report}/file", scope: teams.DomainsRead, serve: (*call).domainReportFile},
		{pattern: "POST /app/domains/{id}/settings", scope: teams.DomainsWrite, action: "domain.updated",
			serve: (*call).saveDomain},
		{pattern: "POST /app/domains/{id}/mta-sts", scope: teams.DomainsWrite, action: "domain.mta_sts_updated",
			serve: (*call).saveMTASTS},
		{pattern: "GET /app/domains/{id}/forwarding", scope: teams.DomainsRead, serve: (*call).forwarding},
		{pattern: "POST /app/domains/{id}/forwarding", scope: teams.DomainsWrite, action: "domain.forward_created",
			serve: (*call).addForward},
		{pattern: "POST /app/domains/{id}/forwarding/{rule}/switch", scope: teams.DomainsWrite,
			action: "domain.forward_updated", serve: (*call).switchForward},
		{pattern: "POST /app/domains/{id}/forwarding/{rule}/delete", scope: teams.DomainsWrite,
			action: "domain.forward_deleted", serve: (*call).deleteForward},
		{pattern: "POST /app/domains/{id}/forwarding/{rule}/secret", scope: teams.DomainsWrite,
			action: "domain.forward_secret_shown", serve: (*call).showForwardSecret},
		{pattern: "GET /app/domains/{id}/forwarding/{rule}/rotate", scope: teams.DomainsWrite,
			serve: (*call).askRotateForward},
		{pattern: "POST /app/domains/{id}/forwarding/{rule}/rotate", scope: teams.DomainsWrite,
			action: "domain.forward_secret_rotated", serve: (*call).rotateForward},
		{pattern: "POST /app/domains/{id}/forwarding/{rule}/ask", scope: teams.DomainsWrite,
			action: "domain.forward_asked", serve: (*call).askForward},
		{pattern: "POST /app/domains/{id}/verify", scope: teams.DomainsWrite, action: "domain.verification_started",
			serve: (*call).verifyDomain},
		{pattern: "POST /app/domains/{id}/setup", scope: teams.DomainsWrite, action: "domain.setup_changed",
			serve: (*call).changeSetup},
		{pattern: "POST /app/domains/{id}/keys/rotate", scope: teams.DomainsWrite, action: "domain.keys_rotated",
			serve: (*call).rotateKeys},
		{pattern: "POST /app/domains/{id}/claim", scope: teams.DomainsWrite, action: "domain.claim_verified",
			serve: (*call).verifyClaim},
		{pattern: "POST /app/domains/{id}/delete", scope: teams.DomainsWrite, action: "domain.deleted",
			serve: (*call).deleteDomain},

		{pattern: "GET /app/keys", scope: teams.KeysRead, serve: (*call).keys},
		{pattern: "GET /app/keys/new", scope: teams.KeysWrite, serve: (*call).showNewKey},
		{pattern: "POST /app/keys/new", scope: teams.KeysWrite, action: "api_key.created", serve: (*call).createKey},
		{pattern: "GET /app/keys/{id}", scope: teams.KeysRead, serve: (*call).key},
		{pattern: "POST /app/keys/{id}/rename", scope: teams.KeysWrite, action: "api_key.updated", serve: (*call).renameKey},
		{pattern: "POST /app/keys/{id}/delete", scope: teams.KeysWrite, action: "api_key.deleted", serve: (*call).deleteKey},
		{pattern: "GET /app/settings/smtp", serve: (*call).smtp},

		{pattern: "GET /app/webhooks", scope: teams.WebhooksRead, serve: (*call).webhooks},
		{pattern: "GET /app/webhooks/new", scope: teams.WebhooksWrite, serve: (*call).showNewWebhook},
		{pattern: "POST /app/webhooks/new", scope: teams.WebhooksWrite, action: "webhook.created", serve: (*call).addWebhook},
		{pattern: "GET /app/webhooks/{id}", scope: teams.WebhooksRead, serve: (*call).webhook},
		{pattern: "GET /app/webhooks/{id}/edit", scope: teams.WebhooksWrite, serve: (*call).showEditWebhook},
		{pattern: "POST /app/webhooks/{id}/edit", scope: teams.WebhooksWrite, action: "webhook.updated",
			serve: (*call).editWebhook},
		{pattern: "POST /app/webhooks/{id}/status", scope: teams.WebhooksWrite, action: "webhook.updated",
			serve: (*call).setWebhookStatus},
		{pattern: "POST /app/webhooks/{id}/secret", scope: teams.WebhooksWrite, action: "webhook.secret_shown",
			serve: (*call).showWebhookSecret},
		{pattern: "GET /app/webhooks/{id}/rotate", scope: teams.WebhooksWrite, serve: (*call).askRotateWebhook},
		{pattern: "POST /app/webhooks/{id}/rotate", scope: teams.WebhooksWrite, action: "webhook.secret_rotated",
			serve: (*call).rotateWebhook},
		{pattern: "GET /app/webhooks/{id}/recover", scope: teams.WebhooksWrite, serve: (*call).askRecoverWebhook},
		{pattern: "POST /app/webhooks/{id}/recover", scope: teams.WebhooksWrite, action: "webhook.recovered",
			serve: (*call).recoverWebhook},
		{pattern: "GET /app/webhooks/{id}/delete", scope: teams.WebhooksWrite, serve: (*call).askDeleteWebhook},
		{pattern: "POST /app/webhooks/{id}/delete", scope: teams.WebhooksWrite, action: "webhook.deleted",
			serve: (*call).deleteWebhook},
		{pattern: "GET /app/webhooks/{id}/messages/{message}", scope: teams.WebhooksRead, serve: (*call).webhookMessage},
		{pattern: "POST /app/webhooks/{id}/messages/{message}/replay", scope: teams.WebhooksWrite,
			action: "webhook.event_replayed", serve: (*call).replayWebhookMessage},

		{pattern: "GET /app/suppressions", searches: true, scope: teams.SuppressionsRead, serve: (*call).suppressions},
		{pattern: "GET /app/suppressions/add", scope: teams.SuppressionsWrite, serve: (*call).showAddSuppressions},
		{pattern: "POST /app/suppressions/add", scope: teams.SuppressionsWrite, action: "suppressions.created",
			serve: (*call).addSuppressions},
		{pattern: "POST /app/suppressions/filters", scope: teams.SuppressionsRead, own: true,
			serve: saveFilter(savedfilters.Suppressions)},
		{pattern: "POST /app/suppressions/filters/{id}/delete", scope: teams.SuppressionsRead, own: true,
			serve: deleteFilter(savedfilters.Suppressions)},
		{pattern: "GET /app/suppressions/{id}", scope: teams.SuppressionsRead, serve: (*call).suppression},
		{pattern: "POST /app/suppressions/{id}/remove", scope: teams.SuppressionsWrite, action: "suppression.deleted",
			serve: (*call).removeSuppression},

		{pattern: "GET /app/logs", searches: true, scope: teams.LogsRead, serve: (*call).logs},
		{pattern: "POST /app/logs/filters", scope: teams.LogsRead, own: true, serve: saveFilter(savedfilters.Logs)},
		{pattern: "POST /app/logs/filters/{id}/delete", scope: teams.LogsRead, own: true,
			serve: deleteFilter(savedfilters.Logs)},
		{pattern: "GET /app/logs/{id}", scope: teams.LogsRead, serve: (*call).log},

		{pattern: "GET /app/exports", whileSuspended: true, serve: (*call).exportRuns},
		{pattern: "GET /app/emails/export", scope: teams.EmailsRead, whileSuspended: true, stream: true,
			serve: (*call).exportEmails},
		{pattern: "GET /app/suppressions/export", scope: teams.SuppressionsRead, stream: true,
			serve: (*call).exportSuppressions},
		{pattern: "GET /app/logs/export", scope: teams.LogsRead, stream: true, serve: (*call).exportLogs},

		{pattern: "GET /app/metrics", searches: true, scope: teams.EmailsRead, whileSuspended: true, serve: (*call).metrics},
		{pattern: "GET /app/metrics/export", scope: teams.EmailsRead, whileSuspended: true, serve: (*call).exportMetrics},

		{pattern: "GET /app/receiving", searches: true, scope: teams.ReceivingRead, whileSuspended: true,
			serve: (*call).receiving},
		{pattern: "POST /app/receiving/filters", scope: teams.ReceivingRead, own: true,
			serve: saveFilter(savedfilters.Receiving)},
		{pattern: "POST /app/receiving/filters/{id}/delete", scope: teams.ReceivingRead, own: true,
			serve: deleteFilter(savedfilters.Receiving)},
		{pattern: "GET /app/receiving/{id}", scope: teams.ReceivingRead, whileSuspended: true, serve: (*call).received},
		{pattern: "GET /app/receiving/{id}/newer", scope: teams.ReceivingRead, whileSuspended: true,
			serve: (*call).newerReceived},
		{pattern: "GET /app/receiving/{id}/older", scope: teams.ReceivingRead, whileSuspended: true,
			serve: (*call).olderReceived},
		{pattern: "GET /app/receiving/{id}/html", scope: teams.ReceivingRead, whileSuspended: true,
			frame: true, serve: (*call).receivedHTML},
		{pattern: "GET /app/receiving/{id}/raw", scope: teams.ReceivingRead, whileSuspended: true,
			serve: (*call).receivedRaw},
		{pattern: "GET /app/receiving/{id}/files/{file}", scope: teams.ReceivingRead, whileSuspended: true,
			serve: (*call).receivedFile},
		{pattern: "GET /app/receiving/{id}/reply", scope: teams.EmailsSend, serve: (*call).showReply},
		{pattern: "POST /app/receiving/{id}/reply", scope: teams.EmailsSend, serve: (*call).sendReply},
		{pattern: "GET /app/receiving/{id}/forward", scope: teams.EmailsSend, serve: (*call).showForward},
		{pattern: "POST /app/receiving/{id}/forward", scope: teams.EmailsSend, serve: (*call).sendForward},

		{pattern: "GET /app/contacts/{id}", scope: teams.ContactsRead, serve: (*call).contact},
		{pattern: "GET /app/broadcasts/{id}", scope: teams.BroadcastsRead, whileSuspended: true,
			serve: (*call).broadcast},

		{pattern: "GET /app/start", whileSuspended: true, serve: (*call).start},
		{pattern: "GET /app/settings", whileSuspended: true, serve: (*call).settings},
		{pattern: "POST /app/settings/name", scope: teams.MembersWrite, action: teamRenamed, serve: (*call).renameTeam},
		{pattern: "GET /app/settings/audit", searches: true, scope: teams.AuditRead, whileSuspended: true,
			serve: (*call).audit},
	}
}
