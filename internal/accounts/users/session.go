package users

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	sessionIdle  = 14 * 24 * time.Hour // an unused session ends after this time
	sessionLife  = 90 * 24 * time.Hour // every session ends after this time
	usedEvery    = time.Minute         // minimum interval between updates of a session's time of last use
	proofLasts   = 15 * time.Minute    // how long a password or a passkey counts as a recent proof
	cacheFor     = 5 * time.Second     // maximum delay of another node's change if its hint is lost
	cacheMax     = 10_000              // cached sessions
	sessionsMax  = 50                  // maximum number of sessions per user; one more ends the oldest
	maxUserAgent = 300                 // maximum length of a stored user agent, in bytes
	tokenLength  = 43                  // length in characters of 32 bytes in base64url
)

type cachedSession struct {
	Session
	user  User
	until time.Time
}

// newToken returns a random 256-bit token for a cookie or a link.
func newToken() string {
	b := make([]byte, 32)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// hashToken returns the hash that is stored in place of a token. Tokens are random, so a fast hash is secure enough.
func hashToken(token string) string {
	h := sha256.Sum256([]byte(token))
	return hex.EncodeToString(h[:])
}

func (s *Service) forget() {
	s.mu.Lock()
	s.cache = map[string]cachedSession{}
	s.epoch++
	s.mu.Unlock()
}

// Fresh reports whether the session's proof of identity is recent enough to change authentication factors. A proof
// whose time is in the future, for example because of a wrong clock, does not count as recent.
func (x *Session) Fresh(now time.Time) bool {
	ago := now.Sub(x.ProvedAt)
	return ago < proofLasts && ago > -clocksDiffer
}

// expires returns the time at which a session ends if it is not used again.
func (x *Session) expires() time.Time {
	idle, life := x.UsedAt.Add(sessionIdle), x.CreatedAt.Add(sessionLife)
	if idle.Before(life) {
		return idle
	}
	return life
}

// StartIn begins a session and returns its token. Call StartIn in the transaction that authenticates or creates the
// user. The audit log records the sign-in method, such as password, passkey or invitation.
func (s *Service) StartIn(ctx context.Context, tx *db.Tx, u User, method string, c Client) (string, error) {
	now := s.now()
	token := newToken()
	x := Session{ID: id.New(), UserID: u.ID, Address: c.Address, UserAgent: cut(c.UserAgent, maxUserAgent),
		CreatedAt: now, UsedAt: now, ProvedAt: now}
	last, err := lastTeam(ctx, tx.Reader, u.ID)
	if err != nil {
		return "", err
	}
	x.TeamID = last
	switch ended, err := trimSessions(ctx, tx, u.ID, sessionsMax-1); {
	case err != nil:
		return "", err
	case ended:
		s.changed(tx, u.ID)
	}
	insertSession(ctx, tx, &x, hashToken(token))
	setSignedIn(ctx, tx, u.ID, now)
	return token, s.recordByUser(ctx, tx, u, audit.UserSignedIn, method, c)
}

// Session returns the session identified by a token, and the session's user. If the session is not active, Session
// returns a BadCredential fault.
func (s *Service) Session(ctx context.Context, token string) (Session, User, error) {
	if len(token) != tokenLength {
		return Session{}, User{}, errNoSession
	}
	hash, clock, now := hashToken(token), time.Now(), s.now()
	s.mu.Lock()
	c, ok := s.cache[hash]
	epoch := s.epoch
	s.mu.Unlock()
	if ok && clock.Before(c.until) && now.Before(c.ExpiresAt) {
		return c.Session, c.user, nil
	}
	x, u, err := findSession(ctx, s.DB.Reader, hash)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return Session{}, User{}, errNoSession
	case err != nil:
		return Session{}, User{}, fmt.Errorf("look up session: %w", err)
	case u.Disabled, !now.Before(x.ExpiresAt):
		return Session{}, User{}, errNoSession
	}
	if now.Sub(x.UsedAt) >= usedEvery {
		s.use(&x, now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch == s.epoch {
		if len(s.cache) >= cacheMax {
			clear(s.cache)
		}
		s.cache[hash] = cachedSession{x, u, clock.Add(cacheFor)}
	}
	return x, u, nil
}

var errNoSession = fault.New(fault.BadCredential, "", "Sign in.")

// use queues an update of a session's time of last use, so that the request does not wait for it. If the update fails,
// the session stays valid, and the next use is recorded instead.
func (s *Service) use(x *Session, now time.Time) {
	sessionID := x.ID
	if !s.enqueue("record the use of a session", func(ctx context.Context, tx *db.Tx) error {
		setUsed(ctx, tx, sessionID, now)
		return nil
	}) {
		return
	}
	x.UsedAt = now
	x.ExpiresAt = x.expires()
}

// Sessions returns the user's active sessions, newest first.
func (s *Service) Sessions(ctx context.Context, userID string) ([]Session, error) {
	all, err := listSessions(ctx, s.DB.Reader, userID)
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	now := s.now()
	live := all[:0]
	for _, x := range all {
		if now.Before(x.ExpiresAt) {
			live = append(live, x)
		}
	}
	return live, nil
}

// EndSession ends one of a user's sessions.
func (s *Service) EndSession(ctx context.Context, userID, sessionID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		if err := deleteSession(ctx, tx, userID, sessionID); err != nil {
			return err
		}
		s.changed(tx, userID)
		return s.recordByUserID(ctx, tx, userID, audit.SessionEnded, "", Client{})
	})
}

// EndSessions ends all sessions of a user, except for the session whose id is given as except. If except is "",
// EndSessions ends all sessions.
func (s *Service) EndSessions(ctx context.Context, userID, except string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		deleteSessions(ctx, tx, userID, except)
		s.changed(tx, userID)
		return s.recordByUserID(ctx, tx, userID, sessionsEnded, "", Client{})
	})
}

// SetTeam stores the team that the session's user is viewing.
func (s *Service) SetTeam(ctx context.Context, sessionID, teamID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error { return s.SetTeamIn(ctx, tx, sessionID, teamID) })
}

// SetTeamIn is like [Service.SetTeam], in the caller's transaction.
func (s *Service) SetTeamIn(ctx context.Context, tx *db.Tx, sessionID, teamID string) error {
	userID, err := setTeam(ctx, tx, sessionID, teamID)
	if err != nil {
		return err
	}
	s.changed(tx, userID)
	return nil
}

// cut truncates an untrusted string to at most n bytes. The truncated string is valid UTF-8 without NUL characters,
// because PostgreSQL rejects any other string.
func cut(text string, n int) string {
	if len(text) > n {
		text = text[:n]
	}
	return clean(text)
}
