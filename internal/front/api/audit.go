package api

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/platform/audit"
)

// auditQuery lists the query parameters for reading the audit log.
var auditQuery = slices.Clip([]string{"actor_id", "action", "target_id", "from", "to"})

// auditItem is an audit log entry.
type auditItem struct {
	ID        string      `json:"id"`
	CreatedAt wire.DBTime `json:"created_at"`
	Action    string      `json:"action" doc:"The action, such as domain.created."`
	TargetID  *string     `json:"target_id" doc:"The ID of the resource that was changed."`
	Detail    *string     `json:"detail"`
	Actor     actorWire   `json:"actor"`
	Address   *string     `json:"ip_address"`
	UserAgent *string     `json:"user_agent"`
	RequestID *string     `json:"request_id" doc:"The X-Request-Id of the response."`
}

// actorWire is the actor who caused an audit log entry or requested an approval.
type actorWire struct {
	Type string  `json:"type" enum:"key,user,grant,system"`
	ID   *string `json:"id" doc:"Null if the actor is the system."`
	Name *string `json:"name" doc:"The name of the key or OAuth client, or the address of the user, at that time."`
}

// auditList is a page of the audit log. A page can have fewer entries than the limit even if more entries match,
// because each request reads a limited number of rows.
type auditList struct {
	Object  string      `json:"object"`
	HasMore bool        `json:"has_more"`
	Data    []auditItem `json:"data"`
	Next    string      `json:"next,omitzero" doc:"Present if few entries match and there may be more. Pass it as after (or before) to continue the search."`
}

func auditToItem(e audit.Entry) auditItem {
	return auditItem{e.ID, wire.DBTime(e.At), e.Action, orNull(e.Target), orNull(e.Detail),
		actorWire{e.ActorKind, orNull(e.ActorID), orNull(e.ActorName)}, orNull(e.Address), orNull(e.UserAgent),
		orNull(e.RequestID)}
}

func (a *API) listAudit(ctx context.Context, c *wire.Call, _ wire.None) (auditList, error) {
	p, err := c.Page(20)
	if err != nil {
		return auditList{}, err
	}
	f, err := auditFilter(c.Query())
	if err != nil {
		return auditList{}, err
	}
	all, more, next, err := a.Services.Audit.List(ctx, c.TeamID, f, p)
	l := wire.ListOf(all, more, auditToItem)
	return auditList{l.Object, l.HasMore, l.Data, next}, err
}

func (a *API) exportAudit(_ context.Context, c *wire.Call) (*exports.Export, error) {
	f, err := auditFilter(c.Query())
	return a.Services.Exports.Audit(c.TeamID, f), err
}

func auditFilter(q url.Values) (f audit.Filter, err error) {
	f = audit.Filter{ActorID: strings.ToLower(q.Get("actor_id")), Action: q.Get("action"),
		Target: strings.ToLower(q.Get("target_id"))}
	return f, readSpan(q, &f.From, &f.To)
}

// pathParam matches a parameter in the path of a route.
var pathParam = regexp.MustCompile(`\{(\w+)\}`)

// readActions maps read operations to audit log actions. The audit log records only those read operations that return
// secrets or exported data.
var readActions = map[string]string{
	"GET /emails/export":              "emails.exported",
	"GET /contacts/export":            "contacts.exported",
	"GET /contacts/{contact}/export":  "contact.exported",
	"GET /suppressions/export":        "suppressions.exported",
	"GET /logs/export":                "logs.exported",
	"GET /audit/export":               "audit.exported",
	"POST /emails/{email_id}/share":   "email.shared",
	"GET /webhooks/{webhook_id}":      "webhook.secret_shown",
	"GET /automations/signing-secret": "automation.secret_shown",

	"GET /domains/{domain_id}/forwards/{forward_id}": "domain.forward_secret_shown",
}

// irregularActions maps operations to audit log actions that cannot be derived from the path.
var irregularActions = map[string]string{
	"PATCH /emails/{email_id}":                                     "email.rescheduled",
	"POST /templates/{template}/versions/{version}/restore":        "template.restored",
	"POST /contacts/{contact}/segments/{segment_id}":               "contact.segment_added",
	"DELETE /contacts/{contact}/segments/{segment_id}":             "contact.segment_removed",
	"PATCH /contacts/{contact}/topics":                             "contact.topics_updated",
	"POST /contacts/imports":                                       "import.created",
	"POST /contacts/imports/{import_id}/cancel":                    "import.cancelled",
	"POST /audiences":                                              "segment.created",
	"DELETE /audiences/{audience_id}":                              "segment.deleted",
	"POST /audiences/{audience_id}/contacts":                       "contact.created",
	"PATCH /audiences/{audience_id}/contacts/{contact}":            "contact.updated",
	"DELETE /audiences/{audience_id}/contacts/{contact}":           "contact.deleted",
	"POST /broadcasts/{broadcast_id}/winner":                       "broadcast.winner_chosen",
	"POST /automations/{automation_id}/runs/{run_id}/cancel":       "automation.run_cancelled",
	"POST /domains/claim":                                          "domain.claimed",
	"POST /domains/claims":                                         "domain.claimed",
	"POST /domains/{domain_id}/claim/verify":                       "domain.claim_verified",
	"POST /domains/{domain_id}/claims/verify":                      "domain.claim_verified",
	"POST /domains/{domain_id}/verify":                             "domain.verification_started",
	"PUT /domains/{domain_id}/mta-sts":                             "domain.mta_sts_updated",
	"POST /domains/{domain_id}/keys/rotate":                        "domain.keys_rotated",
	"PUT /domains/{domain_id}/setup":                               "domain.setup_changed",
	"POST /domains/{domain_id}/forwards":                           "domain.forward_created",
	"PATCH /domains/{domain_id}/forwards/{forward_id}":             "domain.forward_updated",
	"DELETE /domains/{domain_id}/forwards/{forward_id}":            "domain.forward_deleted",
	"POST /domains/{domain_id}/forwards/{forward_id}/confirmation": "domain.forward_asked",
	"PATCH /team/members/{user_id}":                                audit.MemberRoleChanged,
	"DELETE /team/members/{user_id}":                               audit.MemberRemoved,
	"POST /team/invitations":                                       audit.MemberInvited,
	"POST /team/invitations/{invitation_id}/resend":                audit.InvitationSent,
	"DELETE /team/invitations/{invitation_id}":                     audit.InvitationRevoked,
	"PATCH /oauth/grants/{oauth_grant_id}":                         audit.GrantUpdated,
	"DELETE /oauth/grants/{oauth_grant_id}":                        audit.GrantRevoked,
	"POST /approvals":                                              audit.ApprovalRequested,
	"POST /approvals/{approval_id}/approve":                        audit.ApprovalApproved,
	"POST /approvals/{approval_id}/reject":                         audit.ApprovalRejected,
	"POST /suppressions/batch/add":                                 "suppressions.created",
	"POST /suppressions/batch/remove":                              "suppressions.deleted",
	"POST /webhooks/{webhook_id}/signing-secret/rotate":            "webhook.secret_rotated",
	"POST /webhooks/{webhook_id}/events/{webhook_event_id}/replay": "webhook.event_replayed",

	"POST /domains/{domain_id}/forwards/{forward_id}/signing-secret/rotate": "domain.forward_secret_rotated",
}

// irregularNouns maps the first path segment to the resource's name, for plurals whose singular is not formed by
// removing the final s.
var irregularNouns = map[string]string{"contact-properties": "contact_property", "api-keys": "api_key"}

// pastTense maps a method, or the last segment of a path, to a past-tense verb.
var pastTense = map[string]string{http.MethodPost: "created", http.MethodPut: "updated", http.MethodPatch: "updated", http.MethodDelete: "deleted",
	"cancel": "cancelled", "duplicate": "duplicated", "erase": "erased", "pause": "paused", "publish": "published",
	"recover": "recovered", "resend": "resent", "resume": "resumed", "send": "sent", "stop": "stopped",
	"test": "tested", "verify": "verified"}

// auditAction returns the audit log action for an operation, such as domain.created. Operations that send emails or
// events are not recorded, because there may be thousands per second. Sent emails and events are recorded in the
// request log and have their own lists.
func auditAction(r *route) (x wire.AuditAction) {
	name := r.method + " " + r.path
	if m := pathParam.FindStringSubmatch(r.path); m != nil {
		x.Target = m[1]
	}
	if x.Name = readActions[name]; x.Name != "" {
		x.ReadOnly = true
		return x
	}
	segments := strings.Split(strings.Trim(r.path, "/"), "/")
	sends := r.scope == teams.EventsSend ||
		strings.HasPrefix(segments[0], "email") && (r.scope == teams.EmailsSend || r.scope == teams.ApprovalsRequest)
	if r.method == http.MethodGet || r.scope == wire.Open || sends || strings.HasSuffix(r.scope.String(), ":read") {
		return wire.AuditAction{}
	}
	if x.Name = irregularActions[name]; x.Name != "" {
		return x
	}
	noun, ok := irregularNouns[segments[0]]
	if !ok {
		noun = strings.TrimSuffix(segments[0], "s")
	}
	verb := r.method
	if last := segments[len(segments)-1]; len(segments) > 1 && !strings.HasPrefix(last, "{") {
		verb = last
	}
	past, ok := pastTense[verb]
	if !ok {
		past = strings.ReplaceAll(verb, "-", "_")
	}
	x.Name = noun + "." + past
	return x
}
