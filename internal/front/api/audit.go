package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/platform/audit"
)

// auditQuery are the filters of the audit log.
var auditQuery = slices.Clip([]string{"actor_id", "action", "target_id", "from", "to"})

// auditItem is an entry of the audit log.
type auditItem struct {
	ID        string    `json:"id"`
	CreatedAt dbTime    `json:"created_at"`
	Action    string    `json:"action" doc:"What was done, such as domain.created."`
	TargetID  *string   `json:"target_id" doc:"To what."`
	Detail    *string   `json:"detail"`
	Actor     actorWire `json:"actor"`
	Address   *string   `json:"ip_address"`
	UserAgent *string   `json:"user_agent"`
	RequestID *string   `json:"request_id" doc:"As in the X-Request-Id header of the answer."`
}

// actorWire is who did something.
type actorWire struct {
	Type string  `json:"type" enum:"key,user,grant,system"`
	ID   *string `json:"id" doc:"Null for the system."`
	Name *string `json:"name" doc:"At that time: the name of a key or a program, the address of a person."`
}

// auditList is a list of entries, as far as it was looked through.
type auditList struct {
	Object  string      `json:"object"`
	HasMore bool        `json:"has_more"`
	Data    []auditItem `json:"data"`
	Next    string      `json:"next,omitzero" doc:"Given when few entries match and there may be more: the value of after, or of before, with which to go on."`
}

func auditToItem(e audit.Entry) auditItem {
	return auditItem{e.ID, dbTime(e.At), e.Action, orNull(e.Target), orNull(e.Detail),
		actorWire{e.ActorKind, orNull(e.ActorID), orNull(e.ActorName)}, orNull(e.Address), orNull(e.UserAgent),
		orNull(e.RequestID)}
}

func (a *API) listAudit(ctx context.Context, c *Call, _ none) (auditList, error) {
	p, err := c.Page(20)
	if err != nil {
		return auditList{}, err
	}
	f, err := auditFilter(c.Query())
	if err != nil {
		return auditList{}, err
	}
	all, more, next, err := a.Services.Audit.List(ctx, c.TeamID, f, p)
	l := listOf(all, more, auditToItem)
	return auditList{l.Object, l.HasMore, l.Data, next}, err
}

func (a *API) exportAudit(_ context.Context, c *Call) (*exports.Export, error) {
	f, err := auditFilter(c.Query())
	return a.Services.Exports.Audit(c.TeamID, f), err
}

func auditFilter(q url.Values) (f audit.Filter, err error) {
	f = audit.Filter{ActorID: strings.ToLower(q.Get("actor_id")), Action: q.Get("action"),
		Target: strings.ToLower(q.Get("target_id"))}
	return f, readSpan(q, &f.From, &f.To)
}

// act is how an operation is recorded in the audit log.
type act struct {
	action string // "" if it is not
	param  string // of the path that has the id of what it is done to; "" for none
	shown  bool   // nothing changes, but something is shown that is worth an entry
}

// shows are the operations that change nothing and are recorded, because what they show leaves the team's control.
var shows = map[string]string{
	"GET /emails/export":              "emails.exported",
	"GET /contacts/export":            "contacts.exported",
	"GET /contacts/{contact}/export":  "contact.exported",
	"GET /suppressions/export":        "suppressions.exported",
	"GET /logs/export":                "logs.exported",
	"GET /audit/export":               "audit.exported",
	"POST /emails/{email_id}/share":   "email.shared",
	"GET /webhooks/{webhook_id}":      "webhook.secret_shown",
	"GET /automations/signing-secret": "automation.secret_shown",
}

// actions are the names of what operations do where they do not follow from the path.
var actions = map[string]string{
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
}

// things are resources whose name is not that of their path without its last letter.
var things = map[string]string{"contact-properties": "contact_property", "api-keys": "api_key"}

// done are the past tenses of operations.
var done = map[string]string{http.MethodPost: "created", http.MethodPatch: "updated", http.MethodDelete: "deleted",
	"cancel": "cancelled", "duplicate": "duplicated", "erase": "erased", "pause": "paused", "publish": "published",
	"recover": "recovered", "resend": "resent", "resume": "resumed", "send": "sent", "stop": "stopped",
	"test":   "tested",
	"verify": "verified"}

// actOf returns how an operation is recorded: what it does to what, as in domain.created. Operations that send emails
// or events are not: the request log and the emails tell of them, and there may be thousands in a second.
func actOf(o *op) (x act) {
	name := o.method + " " + o.path
	if m := pathParam.FindStringSubmatch(o.path); m != nil {
		x.param = m[1]
	}
	if x.action = shows[name]; x.action != "" {
		x.shown = true
		return x
	}
	segments := strings.Split(strings.Trim(o.path, "/"), "/")
	sends := o.scope == teams.EventsSend ||
		strings.HasPrefix(segments[0], "email") && (o.scope == teams.EmailsSend || o.scope == teams.ApprovalsRequest)
	if o.method == http.MethodGet || o.scope == open || sends || strings.HasSuffix(o.scope.String(), ":read") {
		return act{}
	}
	if x.action = actions[name]; x.action != "" {
		return x
	}
	thing, ok := things[segments[0]]
	if !ok {
		thing = strings.TrimSuffix(segments[0], "s")
	}
	verb := o.method
	if last := segments[len(segments)-1]; len(segments) > 1 && !strings.HasPrefix(last, "{") {
		verb = last
	}
	past, ok := done[verb]
	if !ok {
		past = strings.ReplaceAll(verb, "-", "_")
	}
	x.action = thing + "." + past
	return x
}

// entry returns the entry of a call in the audit log.
func (c *Call) entry(x act) audit.Entry {
	e := audit.Entry{TeamID: c.TeamID, ActorKind: string(c.Kind), ActorID: c.Actor.ID, ActorName: c.Name,
		Action:  x.action,
		Address: peer(c.Request), UserAgent: c.Request.UserAgent(), RequestID: c.w.id}
	if x.param != "" {
		// Other names of things in paths are addresses of people, which the log does not have.
		if text := c.Param(x.param); id.Valid(text) {
			e.Target = strings.ToLower(text)
		}
	}
	return e
}
