package exports

import (
	"context"

	"github.com/postrider/postrider/internal/platform/audit"
)

// AuditRow is the exported form of an audit log entry.
type AuditRow struct {
	ID        string  `json:"id"`
	CreatedAt string  `json:"created_at"`
	Action    string  `json:"action" doc:"The action, such as domain.created."`
	TargetID  *string `json:"target_id" doc:"The affected object."`
	Detail    *string `json:"detail"`
	ActorKind string  `json:"actor_kind" doc:"The kind of the actor: key, user, grant or system."`
	ActorID   *string `json:"actor_id"`
	ActorName *string `json:"actor_name" doc:"The actor's name at that time."`
	Address   *string `json:"ip_address"`
	UserAgent *string `json:"user_agent"`
	RequestID *string `json:"request_id" doc:"The X-Request-Id header of the response."`
}

func (r *AuditRow) at() string { return r.CreatedAt }

func (r *AuditRow) lines(w *table) {
	w.plain(r.CreatedAt)
	w.plain(r.Action)
	w.text(orEmptyString(r.TargetID))
	w.text(orEmptyString(r.Detail))
	w.plain(r.ActorKind)
	w.plain(orEmptyString(r.ActorID))
	w.text(orEmptyString(r.ActorName))
	w.text(orEmptyString(r.Address))
	w.text(orEmptyString(r.UserAgent))
	w.text(orEmptyString(r.RequestID))
	w.plain(r.ID)
	w.end()
}

// Audit exports the audit log of a team, newest first.
func (s *Service) Audit(teamID string, f audit.Filter) *Export {
	return &Export{Name: "audit", columns: []string{"created_at", "action", "target_id", "detail", "actor_kind",
		"actor_id", "actor_name", "ip_address", "user_agent", "request_id", "id"},
		readBatch: func(ctx context.Context, after string) ([]row, string, error) {
			some, next, err := s.audit.Part(ctx, teamID, f, after)
			return toRows(some, next, err, func(e *audit.Entry) row {
				return &AuditRow{e.ID, formatTime(e.At), e.Action, orNull(e.Target), orNull(e.Detail), e.ActorKind,
					orNull(e.ActorID), orNull(e.ActorName), orNull(e.Address), orNull(e.UserAgent), orNull(e.RequestID)}
			})
		}}
}
