package emails

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// Idempotency identifies a request by its idempotency key (API reference section 6). The zero value means no key.
type Idempotency struct {
	Scope string // method and path, because the same key can be used for different operations
	Key   string
	Hash  string // hash of the payload's canonical form
}

// answer is the stored result of a request. Later requests with the same idempotency key get the same answer.
type answer struct {
	IDs    []string     `json:"ids"`
	Errors []BatchError `json:"errors,omitempty"`
	// Response is the response of an operation that uses [Service.OnceResponse]; nil until it is stored.
	Response *Response `json:"response,omitempty"`

	key  Idempotency
	then func(ctx context.Context, tx *db.Tx, emailID string) error // called with the email's id; see SendThen
	dry  bool                                                       // nothing is stored outside the database; see DryRun
}

// unknownError returns the error for a request that may or may not have been accepted. With an idempotency key, the
// client can safely repeat the request, because the key either was stored together with the email or is still free. A
// transaction that inserts the same key waits until the result of the commit is known.
func (a *answer) unknownError(err error) error {
	what, advice := "The email", "Repeat the request with the same idempotency key: it is not sent twice."
	if len(a.IDs) > 1 {
		what = "The emails"
	}
	if a.key.Key == "" {
		advice = "Look at the list of emails before you repeat the request; with an idempotency key it could be repeated " +
			"safely."
	}
	return fault.New(fault.Unavailable, "", "%s may have been accepted: the database was lost before it answered. %s",
		what, advice).
		Because(errors.Unwrap(err))
}

// running holds the idempotency keys of requests that this node is executing. Across nodes, a unique index on the
// idempotency table prevents duplicates.
type running struct {
	mu sync.Mutex
	m  map[string]bool
}

func (r *running) acquire(k string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m[k] {
		return false
	}
	r.m[k] = true
	return true
}

func (r *running) release(k string) {
	r.mu.Lock()
	delete(r.m, k)
	r.mu.Unlock()
}

const idempotencyIndex = "idempotency_keys_pkey"

// Once runs the function do, unless a request with the same key was accepted in the last 24 hours. Once is intended for
// requests that have no result to store. The function do must call remember in the transaction that accepts the
// request.
func (s *Service) Once(ctx context.Context, by teams.Actor, key Idempotency,
	do func(remember func(context.Context, *db.Tx) error) error) error {
	_, err := s.once(ctx, by, key, func(a *answer) error {
		return do(func(ctx context.Context, tx *db.Tx) error { return s.remember(ctx, tx, by.TeamID, a) })
	})
	return err
}

// OnceWithID is like Once, but for requests that create a resource. The function do passes the resource's id to the
// function remember. OnceWithID returns the id of the resource that the first request created.
func (s *Service) OnceWithID(ctx context.Context, by teams.Actor, key Idempotency,
	do func(remember func(ctx context.Context, tx *db.Tx, id string) error) error) (string, error) {
	r, err := s.once(ctx, by, key, func(a *answer) error {
		return do(func(ctx context.Context, tx *db.Tx, id string) error {
			a.IDs = []string{id}
			return s.remember(ctx, tx, by.TeamID, a)
		})
	})
	if err != nil {
		return "", err
	}
	return r.IDs[0], nil
}

// Response is a response to a request that creates or changes an object. The Response is stored with the request's
// idempotency key, and must not contain secrets.
type Response struct {
	ID      string         `json:"-"` // the object's id
	Body    jsontext.Value `json:"body"`
	Warning string         `json:"warning,omitempty"` // the header Postrider-Warning
}

// OnceResponse is like OnceWithID, but stores the whole response. The function do passes the object's id to the
// function remember in the transaction that has the effect, so the key and the effect are stored together. The response
// is stored afterwards. If the process is killed in between, OnceResponse returns a Response that has only an ID to
// later requests.
//
// If do fails and another request with the same key was successful in the meantime, OnceResponse returns that request's
// response. For example, do may have failed because the other request took the object's name.
func (s *Service) OnceResponse(ctx context.Context, by teams.Actor, key Idempotency,
	do func(remember func(ctx context.Context, tx *db.Tx, id string)) (Response, error)) (Response, error) {
	r, err := s.once(ctx, by, key, func(a *answer) error {
		got, err := do(func(ctx context.Context, tx *db.Tx, id string) {
			a.IDs = []string{id}
			s.rememberResponse(ctx, tx, by.TeamID, a)
		})
		if err != nil {
			old, recallErr := s.recall(ctx, by.TeamID, key)
			if recallErr != nil || old == nil {
				return err
			}
			*a = *old
			return nil
		}
		a.Response = &got
		s.storeResponse(ctx, by.TeamID, a)
		return nil
	})
	if err != nil {
		return Response{}, err
	}
	var got Response
	if r.Response != nil {
		got = *r.Response
	}
	if len(r.IDs) > 0 {
		got.ID = r.IDs[0]
	}
	return got, nil
}

// rememberResponse stores the key and the object's id, without a response.
func (s *Service) rememberResponse(ctx context.Context, tx *db.Tx, teamID string, a *answer) {
	text, _ := json.Marshal(&answer{IDs: a.IDs}) // a list of strings is always encoded
	insertIdempotencyKey(ctx, tx, teamID, &a.key, string(text))
}

// storeResponse adds the response to the stored key. If storeResponse fails, the request still succeeds, because the
// key and the object's id are stored.
func (s *Service) storeResponse(ctx context.Context, teamID string, a *answer) {
	text, err := json.Marshal(a)
	if err == nil {
		err = s.DB.Update(db.WithoutAddition(context.WithoutCancel(ctx)), func(tx *db.Tx) error {
			updateIdempotencyKey(ctx, tx, teamID, &a.key, string(text))
			return nil
		})
	}
	if err != nil {
		s.log.Warn("could not store the response of a request with an idempotency key", "team", teamID, "error", err)
	}
}

// once runs the function do, unless an answer is already stored for the key. An answer is stored only if the request is
// accepted, in the same transaction. After a request fails, its key can be used again.
func (s *Service) once(ctx context.Context, by teams.Actor, key Idempotency, do func(*answer) error) (answer, error) {
	a := answer{key: key}
	if key.Key == "" {
		return a, do(&a)
	}
	if len(key.Key) > 256 {
		return a, fault.New(fault.BadIdempotencyKey, "Idempotency-Key", "The idempotency key must have 1 to 256 characters.")
	}
	token := by.TeamID + "\x00" + key.Scope + "\x00" + key.Key
	if !s.running.acquire(token) {
		return a, fault.New(fault.InFlight, "Idempotency-Key",
			"A request with this idempotency key is still being carried out. "+
				"Try again in a moment.")
	}
	defer s.running.release(token)
	if old, err := s.recall(ctx, by.TeamID, key); err != nil || old != nil {
		return deref(old), err
	}
	err := do(&a)
	if s.DB.Violates(err, idempotencyIndex) {
		old, err := s.recall(ctx, by.TeamID, key)
		if err == nil && old == nil {
			err = errors.New("another request used the idempotency key, and its record is gone")
		}
		return deref(old), err
	}
	return a, err
}

func deref(a *answer) answer {
	if a == nil {
		return answer{}
	}
	return *a
}

// EarlierResult looks for a request that used the idempotency key in the last 24 hours, whatever its payload was. If
// there is one, EarlierResult returns the id of the first resource that the request created. If no request used the key
// in the last 24 hours, EarlierResult returns "".
func (s *Service) EarlierResult(ctx context.Context, teamID, scope, key string) (string, error) {
	a, err := s.storedAnswer(ctx, teamID, scope, key)
	if err != nil || a == nil || len(a.IDs) == 0 {
		return "", err
	}
	return a.IDs[0], nil
}

// recall returns the answer stored for the key, or nil. If the key was used with a different payload, recall returns a
// fault.
func (s *Service) recall(ctx context.Context, teamID string, key Idempotency) (*answer, error) {
	a, err := s.storedAnswer(ctx, teamID, key.Scope, key.Key)
	if err == nil && a != nil && a.key.Hash != key.Hash {
		return nil, fault.New(fault.IdempotencyMismatch, "Idempotency-Key",
			"This idempotency key was used with another payload. "+
				"Use a new key for a new request.")
	}
	return a, err
}

// storedAnswer returns the answer stored for a key, or nil if there is none.
func (s *Service) storedAnswer(ctx context.Context, teamID, scope, key string) (*answer, error) {
	a := answer{key: Idempotency{Scope: scope, Key: key}}
	hash, response, created, err := idempotencyKey(ctx, s.DB.Reader, teamID, scope, key)
	switch {
	case errors.Is(err, db.ErrNoRows) || err == nil && s.DB.Now().Sub(created) > keyLifetime:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look up idempotency key: %w", err)
	}
	a.key.Hash = hash
	if err := json.Unmarshal([]byte(response), &a); err != nil {
		return nil, fmt.Errorf("read the answer of an idempotency key: %w", err)
	}
	return &a, nil
}

// remember stores the answer under its idempotency key. If another request has stored the same key in the meantime, the
// unique index is violated and the transaction is rolled back.
func (s *Service) remember(ctx context.Context, tx *db.Tx, teamID string, a *answer) error {
	if a.key.Key == "" {
		return nil
	}
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	insertIdempotencyKey(ctx, tx, teamID, &a.key, string(text))
	return nil
}

// Sweep deletes expired idempotency keys. The caller runs Sweep periodically.
func (s *Service) Sweep(ctx context.Context) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error { return deleteExpiredKeys(ctx, tx) })
}
