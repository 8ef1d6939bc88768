package exports

import (
	"context"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// Service creates exports of data that other packages own.
type Service struct {
	contacts     *contacts.Service
	emails       *emails.Service
	suppressions *suppressions.Service
	logs         *requestlog.Service
	audit        *audit.Log
}

// New returns the export service.
func New(c *contacts.Service, e *emails.Service, s *suppressions.Service, l *requestlog.Service,
	a *audit.Log) *Service {
	return &Service{c, e, s, l, a}
}

// toRows converts a batch's items to rows.
func toRows[T any](items []T, next string, err error, rowOf func(*T) row) ([]row, string, error) {
	rows := make([]row, len(items))
	for i := range items {
		rows[i] = rowOf(&items[i])
	}
	return rows, next, err
}

// SuppressionRow is the exported form of a suppression.
type SuppressionRow struct {
	ID        string  `json:"id"`
	Email     string  `json:"email"`
	Origin    string  `json:"origin" enum:"bounce,complaint,manual"`
	SourceID  *string `json:"source_id" doc:"The email that caused it."`
	CreatedAt string  `json:"created_at"`
}

func (s *SuppressionRow) at() string { return s.CreatedAt }

func (s *SuppressionRow) lines(w *table) {
	w.text(s.Email)
	w.plain(s.Origin)
	w.plain(orEmptyString(s.SourceID))
	w.plain(s.CreatedAt)
	w.plain(s.ID)
	w.end()
}

// Suppressions exports a team's suppressions, newest first. An empty origin selects suppressions of every origin.
func (s *Service) Suppressions(teamID string, origin suppressions.Origin) *Export {
	return &Export{Name: "suppressions", columns: []string{"email", "origin", "source_id", "created_at", "id"},
		readBatch: func(ctx context.Context, after string) ([]row, string, error) {
			some, next, err := s.suppressions.Batch(ctx, teamID, origin, after)
			return toRows(some, next, err, func(x *suppressions.Suppression) row {
				return &SuppressionRow{x.ID, x.Address, string(x.Origin), orNull(x.SourceID), formatTime(x.CreatedAt)}
			})
		}}
}

// LogRow is the exported form of a request log entry, without bodies.
type LogRow struct {
	ID         string  `json:"id"`
	CreatedAt  string  `json:"created_at"`
	Method     string  `json:"method"`
	Endpoint   string  `json:"endpoint" doc:"The path, without host and query."`
	Status     int     `json:"response_status"`
	DurationMS int64   `json:"duration_ms"`
	UserAgent  *string `json:"user_agent"`
	ActorKind  string  `json:"actor_kind" doc:"The kind of the actor: key, user, grant or system."`
	ActorID    string  `json:"actor_id"`
	RequestID  string  `json:"request_id" doc:"The X-Request-Id header of the response."`
}

func (l *LogRow) at() string { return l.CreatedAt }

func (l *LogRow) lines(w *table) {
	w.plain(l.CreatedAt)
	w.plain(l.Method)
	w.text(l.Endpoint)
	w.number(int64(l.Status))
	w.number(l.DurationMS)
	w.text(orEmptyString(l.UserAgent))
	w.plain(l.ActorKind)
	w.plain(l.ActorID)
	w.text(l.RequestID)
	w.plain(l.ID)
	w.end()
}

// Logs exports a team's request log, newest first.
func (s *Service) Logs(teamID string, f requestlog.Filter) *Export {
	return &Export{Name: "logs", columns: []string{"created_at", "method", "endpoint", "response_status", "duration_ms",
		"user_agent", "actor_kind", "actor_id", "request_id", "id"},
		readBatch: func(ctx context.Context, after string) ([]row, string, error) {
			some, next, err := s.logs.Batch(ctx, teamID, f, after)
			return toRows(some, next, err, func(e *requestlog.Entry) row {
				return &LogRow{e.ID, formatTime(e.CreatedAt), e.Method, e.Endpoint, e.Status, e.Duration.Milliseconds(),
					orNull(e.UserAgent), string(e.Actor.Kind), e.Actor.ID, e.RequestID}
			})
		}}
}

// EmailRow is the exported form of a sent email, without its content.
type EmailRow struct {
	ID          string         `json:"id"`
	MessageID   string         `json:"message_id"`
	CreatedAt   string         `json:"created_at"`
	ScheduledAt *string        `json:"scheduled_at"`
	From        string         `json:"from"`
	To          []string       `json:"to"`
	Cc          []string       `json:"cc"`
	Bcc         []string       `json:"bcc"`
	ReplyTo     []string       `json:"reply_to"`
	Subject     string         `json:"subject"`
	LastEvent   string         `json:"last_event"`
	TopicID     *string        `json:"topic_id"`
	TemplateID  *string        `json:"template_id"`
	BroadcastID *string        `json:"broadcast_id"`
	Tags        []emails.Tag   `json:"tags"`
	Recipients  []RecipientRow `json:"recipients"`
}

// RecipientRow is a recipient of an exported email.
type RecipientRow struct {
	Email     string `json:"email"`
	Kind      string `json:"kind" enum:"to,cc,bcc"`
	State     string `json:"state" doc:"The last event of the email for this recipient."`
	UpdatedAt string `json:"updated_at"`
}

func (e *EmailRow) at() string { return e.CreatedAt }

// lines writes one line per recipient, because each recipient has its own state.
func (e *EmailRow) lines(w *table) {
	to := e.Recipients
	if len(to) == 0 {
		to = []RecipientRow{{}}
	}
	tags := list(e.Tags)
	for _, r := range to {
		w.plain(e.CreatedAt)
		w.plain(orEmptyString(e.ScheduledAt))
		w.text(e.From)
		w.text(r.Email)
		w.plain(r.Kind)
		w.plain(r.State)
		w.plain(r.UpdatedAt)
		w.text(e.Subject)
		w.plain(e.LastEvent)
		w.plain(tags)
		w.plain(orEmptyString(e.TopicID))
		w.plain(orEmptyString(e.TemplateID))
		w.plain(orEmptyString(e.BroadcastID))
		w.text(e.MessageID)
		w.plain(e.ID)
		w.end()
	}
}

var emailColumns = []string{"created_at", "scheduled_at", "from", "recipient", "recipient_kind", "recipient_state",
	"recipient_updated_at", "subject", "last_event", "tags", "topic_id", "template_id", "broadcast_id", "message_id", "id"}

// Emails exports the sent emails of an actor's team that a filter selects, newest first.
func (s *Service) Emails(by teams.Actor, f emails.Filter) *Export {
	return &Export{Name: "emails", columns: emailColumns,
		readBatch: func(ctx context.Context, after string) ([]row, string, error) {
			if f.Empty() {
				some, next, err := s.emails.ListPage(ctx, by.TeamID, after)
				return toRows(some, next, err, emailRow)
			}
			some, next, err := s.emails.SearchPage(ctx, by, f, after)
			return toRows(some, next, err, emailRow)
		}}
}

func emailRow(e *emails.EmailWithRecipients) row {
	to := make([]RecipientRow, len(e.Recipients))
	for i, r := range e.Recipients {
		to[i] = RecipientRow{r.Address, r.Kind, string(r.State), formatTime(r.UpdatedAt)}
	}
	return &EmailRow{e.ID, e.MessageID, formatTime(e.CreatedAt), orNull(formatTime(e.ScheduledAt)), e.From, orEmpty(e.To),
		orEmpty(e.Cc), orEmpty(e.Bcc), orEmpty(e.ReplyTo), e.Subject, string(e.LastEvent), orNull(e.TopicID),
		orNull(e.TemplateID), orNull(e.BroadcastID), orEmpty(e.Tags), to}
}
