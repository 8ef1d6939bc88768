// Package audit keeps a log of the actions of people, API keys, connected apps and the system. An entry names the
// actor, the action, the target and the actor's network address.
//
// # Invariants
//
// An entry and the change that it describes are written in the same transaction, so neither exists without the other.
// Entries never change, except that [EraseAddress] replaces an address in details. Entries contain no secrets and
// no email content.
//
// Each request is recorded once. By default, the entry that the request's context carries is written (see [With]). The
// package that makes a change may record its own entry in place of the context's entry (see [Log.Record]). [Log.Also]
// records a consequence of a change in an additional entry.
//
// # Failures
//
// A change fails if its audit entry cannot be written.
//
// # Out of scope
//
// Reads are recorded only if the caller writes an entry. The package does not record sent emails; the request log does.
// The caller, not this package, checks who may read a team's entries.
package audit

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Actions of people, connected apps and the system. The name of an action is the target's type, a dot and a participle.
// Package api names the actions of its operations in the same form.
const (
	UserCreated      = "user.created"
	UserSignedIn     = "user.signed_in"
	UserSignInFailed = "user.sign_in_failed"
	UserSignedOut    = "user.signed_out"
	UserUpdated      = "user.updated"
	UserDisabled     = "user.disabled"
	UserEnabled      = "user.enabled"
	PasswordChanged  = "user.password_changed"
	PasswordReset    = "user.password_reset" // the password was reset with a link from an email
	FactorAdded      = "user.factor_added"   // the entry's detail names the second factor
	FactorRemoved    = "user.factor_removed"
	RecoveryUsed     = "user.recovery_code_used"
	IdentityLinked   = "user.identity_linked"
	IdentityRemoved  = "user.identity_removed"
	SessionEnded     = "session.ended"

	MemberInvited     = "member.invited"
	InvitationRefused = "invitation.refused" // the user's address is not the invited one
	InvitationSent    = "invitation.sent"    // the invitation email was sent again
	InvitationRevoked = "invitation.revoked"
	MemberJoined      = "member.joined"
	MemberRoleChanged = "member.role_changed"
	MemberRemoved     = "member.removed"
	MemberLeft        = "member.left"

	ClientRegistered = "client.registered"
	GrantCreated     = "grant.created"
	GrantUpdated     = "grant.updated" // the grant's limits changed
	GrantRevoked     = "grant.revoked"
	GrantReused      = "grant.reuse_detected" // a refresh token or code was used twice; this revokes the grant

	ApprovalRequested = "approval.requested"
	ApprovalApproved  = "approval.approved"
	ApprovalRejected  = "approval.rejected"
	ApprovalFailed    = "approval.failed" // the email was approved but could not be sent

	DoctorLooked = "doctor.looked" // this installation connected to hosts that another one named
)

// Entry records one action. An empty field means that the value is unknown or does not apply to the action.
type Entry struct {
	ID        string // unique id, set when the entry is written
	TeamID    string // "" if the action concerns no team
	ActorKind string // key, user, grant or system (see package teams)
	ActorID   string
	ActorName string // name of the key or app, or email address of the person, at the time of the action
	Action    string // such as domain.created
	Target    string // id of the object that was changed
	Detail    string // additional facts in a few words
	Address   string // the actor's network address
	UserAgent string
	RequestID string
	At        time.Time // time of the transaction
}

// Maximum lengths of an entry's strings, in bytes. Longer strings are truncated.
const (
	maxName   = 320
	maxDetail = 1000
	maxAgent  = 300
)

// request holds the audit entry that is stored in a request's context.
type request struct {
	mu       sync.Mutex
	entry    Entry
	given    string // detail that the entry had at the beginning
	by       *db.Tx // the transaction that recorded another entry in place of this entry
	replaced bool   // whether the replacing transaction was committed
}

type requestKey struct{}

func carried(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// With returns a context that carries a request's audit entry. The first transaction with this context that changes
// data and commits also writes the entry, unless [Log.Record] replaced it with another entry. An entry without an
// action is not written; it only supplies other entries with an actor and a network address. With fills empty fields in
// e from the entry that ctx already has, and replaces that entry.
func With(ctx context.Context, e Entry) context.Context {
	if before := carried(ctx); before != nil {
		before.mu.Lock()
		e.fill(before.entry)
		before.mu.Unlock()
	}
	r := &request{entry: e, given: e.Detail}
	ctx = context.WithValue(ctx, requestKey{}, r)
	return db.WithAddition(ctx, r.write)
}

// Without returns a copy of ctx that has no audit entry. Callers use Without for changes that the request did not ask
// for.
func Without(ctx context.Context) context.Context {
	return db.WithoutAddition(context.WithValue(ctx, requestKey{}, (*request)(nil)))
}

// Target sets the target of the entry in ctx. Target is needed if the request does not name its target, for example
// because the request creates a resource. Call Target within the transaction. If ctx has no entry, Target does nothing.
func Target(ctx context.Context, id string) {
	if r := carried(ctx); r != nil {
		r.mu.Lock()
		r.entry.Target = id
		r.mu.Unlock()
	}
}

// TargetOf returns the target of the entry in ctx, or "" if there is none.
func TargetOf(ctx context.Context) string {
	r := carried(ctx)
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entry.Target
}

// Team sets the team of the entry in ctx if the entry has none.
func Team(ctx context.Context, teamID string) {
	if r := carried(ctx); r != nil {
		r.mu.Lock()
		if r.entry.TeamID == "" {
			r.entry.TeamID = teamID
		}
		r.mu.Unlock()
	}
}

// Detail sets the detail of the entry in ctx. A detail that [With] has set stays in front of it, such as the word that
// tells commands from requests.
func Detail(ctx context.Context, text string) {
	if r := carried(ctx); r != nil {
		r.mu.Lock()
		if r.entry.Detail = text; r.given != "" {
			r.entry.Detail = strings.TrimSuffix(r.given+": "+text, ": ")
		}
		r.mu.Unlock()
	}
}

// Differences collects the fields that an action has changed, for the detail of its entry.
type Differences []string

// Add adds a field if its value has changed.
func (d *Differences) Add(field, before, now string) {
	if before != now {
		*d = append(*d, field+" before: "+before+", now: "+now)
	}
}

// String returns the changed fields with their former and new values.
func (d Differences) String() string { return strings.Join(d, "; ") }

// write adds the entry to the request's transaction (see [db.WithAddition]).
func (r *request) write(ctx context.Context, tx *db.Tx) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entry.Action == "" || r.replaced || r.by == tx {
		return
	}
	if r.entry.ID == "" {
		r.entry.ID = id.At(tx.Now())
	}
	e := r.entry
	e.At = tx.Now()
	insert(ctx, tx, &e)
}

// replace marks the request's entry as replaced by another one, and returns it.
func (r *request) replace(tx *db.Tx) Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.by = tx
	tx.AfterCommit(func() {
		r.mu.Lock()
		r.replaced = true
		r.mu.Unlock()
	})
	return r.entry
}

// fill copies a missing team, actor or address from the request's entry.
func (e *Entry) fill(from Entry) {
	if e.TeamID == "" {
		e.TeamID = from.TeamID
	}
	if e.ActorKind == "" {
		e.ActorKind, e.ActorID, e.ActorName = from.ActorKind, from.ActorID, from.ActorName
	}
	for _, f := range []struct{ own, of *string }{{&e.Address, &from.Address}, {&e.UserAgent, &from.UserAgent},
		{&e.RequestID, &from.RequestID}, {&e.Detail, &from.Detail}} {
		if *f.own == "" {
			*f.own = *f.of
		}
	}
}

// cut truncates a string to n bytes and removes characters that the database cannot store.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "")
}
