// Package audit keeps a log of what people, API keys, programs and the system did: who, what, to what, from where.
//
// # Invariants
//
// An entry is written in the transaction of the change that it tells of: there is no change without its entry, and no
// entry of a change that was not made. Entries never change. They have no secrets and no content of emails.
//
// A request is recorded once: by the entry that it carries (see [With]), or by what the package that made the change
// recorded in place of it (see [Log.Record]). What follows from the change may be recorded beside it (see [Log.Also]).
//
// # When it fails
//
// An entry that cannot be written fails the change.
//
// # What it does not do
//
// It does not record reads, except those for which a caller writes an entry, nor the sending of emails, which the
// request log tells of. It knows neither teams nor users: who asks for entries, and of which team, is checked by the
// caller.
package audit

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Actions of people, programs and the system. Those of the API's operations are named by package api in the same way:
// what it was done to, a dot, and what was done.
const (
	UserCreated      = "user.created"
	UserSignedIn     = "user.signed_in"
	UserSignInFailed = "user.sign_in_failed"
	UserSignedOut    = "user.signed_out"
	UserUpdated      = "user.updated"
	UserDisabled     = "user.disabled"
	UserEnabled      = "user.enabled"
	PasswordChanged  = "user.password_changed"
	PasswordReset    = "user.password_reset" // by a link
	FactorAdded      = "user.factor_added"   // the detail names it
	FactorRemoved    = "user.factor_removed"
	RecoveryUsed     = "user.recovery_code_used"
	IdentityLinked   = "user.identity_linked"
	IdentityRemoved  = "user.identity_removed"
	SessionEnded     = "session.ended"

	MemberInvited     = "member.invited"
	InvitationRefused = "invitation.refused" // to somebody with another address
	InvitationSent    = "invitation.sent"    // once more
	InvitationRevoked = "invitation.revoked"
	MemberJoined      = "member.joined"
	MemberRoleChanged = "member.role_changed"
	MemberRemoved     = "member.removed"
	MemberLeft        = "member.left"

	ClientRegistered = "client.registered"
	GrantCreated     = "grant.created"
	GrantUpdated     = "grant.updated" // its limits
	GrantRevoked     = "grant.revoked"
	GrantReused      = "grant.reuse_detected" // of a refresh token or a code that was used up, which revokes the grant

	ApprovalRequested = "approval.requested"
	ApprovalApproved  = "approval.approved"
	ApprovalRejected  = "approval.rejected"
	ApprovalFailed    = "approval.failed" // approved, but it could not be sent
)

// Entry tells of one act. Empty fields are unknown or do not apply.
type Entry struct {
	ID        string // made when the entry is written
	TeamID    string // "" for what concerns no team
	ActorKind string // key, user, grant or system, as package teams has them
	ActorID   string
	ActorName string // at that time: the name of a key or a program, the address of a person
	Action    string // such as domain.created
	Target    string // the id of what it was done to
	Detail    string // what else is to be known, in a few words
	Address   string // the network address that it came from
	UserAgent string
	RequestID string
	At        time.Time // of the transaction
}

// The longest texts of an entry, in octets; what is longer is cut.
const (
	maxName   = 320
	maxDetail = 1000
	maxAgent  = 300
)

// request is the entry that a request carries.
type request struct {
	mu       sync.Mutex
	entry    Entry
	by       *db.Tx // the transaction in which something was recorded in place of the entry
	replaced bool   // such a transaction is on disk
}

type requestKey struct{}

func carried(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// With returns a context that carries the entry of a request. The entry is written in the first transaction with this
// context that changes something and is committed, unless something else is recorded there by [Log.Record], which then
// stands in place of it. An entry without an action only says where the request comes from, and who acts. What e leaves
// empty of that is taken from the entry that ctx carries already, in whose place e stands.
func With(ctx context.Context, e Entry) context.Context {
	if before := carried(ctx); before != nil {
		before.mu.Lock()
		e.fill(before.entry)
		before.mu.Unlock()
	}
	r := &request{entry: e}
	ctx = context.WithValue(ctx, requestKey{}, r)
	return db.WithAddition(ctx, r.write)
}

// Without returns a context that carries no entry, for changes that are not what a request asked for.
func Without(ctx context.Context) context.Context {
	return db.WithoutAddition(context.WithValue(ctx, requestKey{}, (*request)(nil)))
}

// Target names what the request changes, in the entry that ctx carries. It is for what the request itself does not
// name, such as what it creates; call it within the transaction. Without an entry it does nothing.
func Target(ctx context.Context, id string) {
	if r := carried(ctx); r != nil {
		r.mu.Lock()
		r.entry.Target = id
		r.mu.Unlock()
	}
}

// Team names the team that the request is about, in the entry that ctx carries, as far as it has none.
func Team(ctx context.Context, teamID string) {
	if r := carried(ctx); r != nil {
		r.mu.Lock()
		if r.entry.TeamID == "" {
			r.entry.TeamID = teamID
		}
		r.mu.Unlock()
	}
}

// Detail sets what else is to be known of the request, in the entry that ctx carries.
func Detail(ctx context.Context, text string) {
	if r := carried(ctx); r != nil {
		r.mu.Lock()
		r.entry.Detail = text
		r.mu.Unlock()
	}
}

// write is the addition to the request's transaction.
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

// replace tells that something is recorded in place of the request's entry, and returns that entry.
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

// fill gives an entry what the request's entry knows of who acts, and from where.
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

// cut makes a text one that the database can store, of at most n octets.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "")
}
