package api

import (
	"net/http"
	"slices"

	"github.com/postrider/postrider/internal/teams"
)

// operations returns all operations of the API, each with the scope that an actor needs for it. To retrieve one
// endpoint takes webhooks:write, because it shows the signing secret. Operations for clients that have no tag are
// aliases: other names that clients use for an operation above them.
func (a *API) operations() []op {
	get, post, patch, del := http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete
	paging := slices.Clip([]string{"limit", "after", "before"})
	return []op{
		{post, "/emails", teams.EmailsSend, 200, "Emails", "Send an email", nil, endpoint(a.sendEmail)},
		{post, "/email", teams.EmailsSend, 200, "", "Send an email", nil, endpoint(a.sendEmail)},
		{post, "/emails/sending", teams.EmailsSend, 200, "", "Send an email", nil, endpoint(a.sendEmail)},
		{post, "/email/sending", teams.EmailsSend, 200, "", "Send an email", nil, endpoint(a.sendEmail)},
		{post, "/emails/batch", teams.EmailsSend, 200, "Emails", "Send up to 100 emails", nil, endpoint(a.sendBatch)},
		{post, "/emails/checks", teams.EmailsSend, 200, "Emails", "Check an email before or after it is sent", nil,
			endpoint(a.checkEmail)},
		{get, "/emails", teams.EmailsRead, 200, "Emails", "List emails", paging, endpoint(a.listEmails)},
		{get, "/emails/receiving", teams.ReceivingRead, 200, "Receiving", "List received emails", append(paging, "thread_id"),
			endpoint(a.listReceived)},
		{get, "/emails/receiving/{email_id}", teams.ReceivingRead, 200, "Receiving", "Retrieve a received email",
			[]string{"html_format"}, endpoint(a.getReceived)},
		{get, "/emails/receiving/{email_id}/attachments", teams.ReceivingRead, 200, "Receiving",
			"List a received email's attachments", paging, endpoint(a.listReceivedFiles)},
		{get, "/emails/receiving/{email_id}/attachments/{attachment_id}", teams.ReceivingRead, 200, "Receiving",
			"Retrieve an attachment of a received email", nil, endpoint(a.getReceivedFile)},
		{get, "/emails/metrics", teams.EmailsRead, 200, "Emails", "Count what happened to emails", metricsQuery,
			endpoint(a.getMetrics)},
		{get, "/emails/{email_id}", teams.EmailsRead, 200, "Emails", "Retrieve an email", nil, endpoint(a.getEmail)},
		{patch, "/emails/{email_id}", teams.EmailsWrite, 200, "Emails", "Reschedule an email", nil, endpoint(a.updateEmail)},
		{post, "/emails/{email_id}/cancel", teams.EmailsWrite, 200, "Emails", "Cancel a scheduled email", nil,
			endpoint(a.cancelEmail)},
		{post, "/emails/{email_id}/share", teams.EmailsShare, 200, "Emails", "Share a sent or received email by a link", nil,
			endpoint(a.shareEmail)},
		{get, "/emails/{email_id}/attachments", teams.EmailsRead, 200, "Emails", "List an email's attachments", paging,
			endpoint(a.listAttachments)},
		{get, "/emails/{email_id}/attachments/{attachment_id}", teams.EmailsRead, 200, "Emails", "Retrieve an attachment",
			nil, endpoint(a.getAttachment)},
		{get, "/emails/{email_id}/events", teams.EmailsRead, 200, "Emails", "List what happened to an email", nil,
			endpoint(a.listEvents)},
		{get, "/emails/{email_id}/attempts", teams.EmailsRead, 200, "Emails",
			"List the tries to deliver an email, with the SMTP conversations", nil, endpoint(a.listAttempts)},
		{get, "/emails/{email_id}/checks", teams.EmailsRead, 200, "Emails", "Check a sent email", nil,
			endpoint(a.getEmailChecks)},

		{post, "/domains", teams.DomainsWrite, 201, "Domains", "Add a domain", nil, endpoint(a.createDomain)},
		{get, "/domains", teams.DomainsRead, 200, "Domains", "List domains", paging, endpoint(a.listDomains)},
		{post, "/domains/claim", teams.DomainsWrite, 201, "Domains", "Claim a domain that another team has registered", nil,
			endpoint(a.claimDomain)},
		{get, "/domains/{domain_id}", teams.DomainsRead, 200, "Domains", "Retrieve a domain with its DNS records", nil,
			endpoint(a.getDomain)},
		{patch, "/domains/{domain_id}", teams.DomainsWrite, 200, "Domains", "Change a domain's settings", nil,
			endpoint(a.updateDomain)},
		{del, "/domains/{domain_id}", teams.DomainsWrite, 200, "Domains", "Delete a domain", nil, endpoint(a.deleteDomain)},
		{post, "/domains/{domain_id}/verify", teams.DomainsWrite, 200, "Domains", "Verify a domain's DNS records", nil,
			endpoint(a.verifyDomain)},
		{get, "/domains/{domain_id}/claim", teams.DomainsRead, 200, "Domains", "Retrieve a claim", nil, endpoint(a.getClaim)},
		{post, "/domains/{domain_id}/claim/verify", teams.DomainsWrite, 200, "Domains", "Verify a claim", nil,
			endpoint(a.verifyClaim)},
		{post, "/domains/claims", teams.DomainsWrite, 201, "", "Claim a domain that another team has registered", nil,
			endpoint(a.claimDomain)},
		{get, "/domains/{domain_id}/claims", teams.DomainsRead, 200, "", "Retrieve a claim", nil, endpoint(a.getClaim)},
		{post, "/domains/{domain_id}/claims/verify", teams.DomainsWrite, 200, "", "Verify a claim", nil,
			endpoint(a.verifyClaim)},

		{post, "/api-keys", teams.KeysWrite, 201, "API keys", "Create an API key", nil, endpoint(a.createKey)},
		{get, "/api-keys", teams.KeysRead, 200, "API keys", "List API keys", paging, endpoint(a.listKeys)},
		{patch, "/api-keys/{api_key_id}", teams.KeysWrite, 200, "API keys", "Rename an API key", nil, endpoint(a.renameKey)},
		{del, "/api-keys/{api_key_id}", teams.KeysWrite, 200, "API keys", "Delete an API key", nil, endpoint(a.deleteKey)},

		{post, "/suppressions", teams.SuppressionsWrite, 201, "Suppressions", "Suppress an address", nil,
			endpoint(a.addSuppression)},
		{get, "/suppressions", teams.SuppressionsRead, 200, "Suppressions", "List suppressed addresses",
			append(paging, "origin"), endpoint(a.listSuppressions)},
		{post, "/suppressions/batch/add", teams.SuppressionsWrite, 201, "Suppressions", "Suppress up to 100 addresses", nil,
			endpoint(a.addSuppressions)},
		{post, "/suppressions/batch/remove", teams.SuppressionsWrite, 200, "Suppressions", "Remove up to 100 suppressions",
			nil, endpoint(a.removeSuppressions)},
		{get, "/suppressions/{suppression}", teams.SuppressionsRead, 200, "Suppressions",
			"Retrieve a suppression by its id or address", nil, endpoint(a.getSuppression)},
		{del, "/suppressions/{suppression}", teams.SuppressionsWrite, 200, "Suppressions",
			"Remove a suppression by its id or address", nil, endpoint(a.removeSuppression)},

		{get, "/logs", teams.LogsRead, 200, "Logs", "List API requests", append(paging, logsQuery...), endpoint(a.listLogs)},
		{get, "/logs/{log_id}", teams.LogsRead, 200, "Logs", "Retrieve an API request with its bodies", nil,
			endpoint(a.getLog)},

		{post, "/webhooks", teams.WebhooksWrite, 201, "Webhooks", "Add an endpoint", nil, endpoint(a.createWebhook)},
		{get, "/webhooks", teams.WebhooksRead, 200, "Webhooks", "List endpoints", paging, endpoint(a.listWebhooks)},
		{get, "/webhooks/{webhook_id}", teams.WebhooksWrite, 200, "Webhooks", "Retrieve an endpoint with its signing secret",
			nil, endpoint(a.getWebhook)},
		{patch, "/webhooks/{webhook_id}", teams.WebhooksWrite, 200, "Webhooks", "Change, disable or enable an endpoint", nil,
			endpoint(a.updateWebhook)},
		{del, "/webhooks/{webhook_id}", teams.WebhooksWrite, 200, "Webhooks", "Delete an endpoint", nil,
			endpoint(a.deleteWebhook)},
		{post, "/webhooks/{webhook_id}/signing-secret/rotate", teams.WebhooksWrite, 200, "Webhooks",
			"Replace the signing secret; the old one signs too for 24 hours", nil, endpoint(a.rotateWebhook)},
		{post, "/webhooks/{webhook_id}/recover", teams.WebhooksWrite, 200, "Webhooks",
			"Deliver again what failed since a time", nil, endpoint(a.recoverWebhook)},
		{get, "/webhooks/{webhook_id}/events", teams.WebhooksRead, 200, "Webhooks", "List the messages of an endpoint",
			[]string{"limit", "after", "status"}, endpoint(a.listWebhookEvents)},
		{get, "/webhooks/{webhook_id}/events/{webhook_event_id}", teams.WebhooksRead, 200, "Webhooks",
			"Retrieve an event with its payload", nil, endpoint(a.getWebhookEvent)},
		{get, "/webhooks/{webhook_id}/events/{webhook_event_id}/attempts", teams.WebhooksRead, 200, "Webhooks",
			"List the attempts to deliver an event", []string{"limit", "after"}, endpoint(a.listWebhookAttempts)},
		{post, "/webhooks/{webhook_id}/events/{webhook_event_id}/replay", teams.WebhooksWrite, 200, "Webhooks",
			"Deliver an event once more", nil, endpoint(a.replayWebhookEvent)},

		{get, "/usage", teams.UsageRead, 200, "Usage", "Tell how much the team has used", nil, endpoint(a.usage)},

		{get, "/", open, 200, "", "Say what this is", nil, endpoint(a.welcome)},
		{get, "/healthz", open, 200, "", "Tell whether the process lives", nil, endpoint(a.healthz)},
		{get, "/readyz", open, 200, "", "Tell whether the node can serve", nil, endpoint(a.readyz)},
	}
}
