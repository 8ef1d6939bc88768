package teams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/page"
)

const (
	maxKeyName = 50              // limit in characters (API reference section 11)
	cacheFor   = 5 * time.Second // how long a change on another node may go unnoticed if its hint is lost
	cacheMax   = 10_000          // cached keys
)

// HintTopic is the topic of the hints sent to other nodes after a change to a team or its keys that may take a right
// away. The payload of a hint is the team's id.
const HintTopic = "teams"

// Config is the part of the configuration that concerns teams.
type Config struct {
	Trial Quota // quota for all new teams except the first
}

// Deps are the dependencies of a Service.
type Deps struct {
	DB  *db.DB
	Log *slog.Logger
	// DomainExists reports whether a team has a domain. A key can be restricted to one of its team's domains.
	DomainExists func(ctx context.Context, teamID, domainID string) (bool, error)
	// AuthenticateToken returns the actor for an access token (see [IsAccessToken]), and the time until which the actor
	// may be cached.
	AuthenticateToken func(ctx context.Context, token string) (Actor, time.Time, error)
	// GrantActive reports whether a grant still exists and is valid.
	GrantActive func(ctx context.Context, r db.Reader, teamID, grantID string) (bool, error)
	// GrantMaySend reports whether emails that a grant asked for earlier may be sent now.
	GrantMaySend func(ctx context.Context, r db.Reader, teamID, grantID string, due DueSend) (bool, error)
	// OnKeyDelete revokes the grants that were approved with a key, in the transaction that deletes the key.
	OnKeyDelete func(ctx context.Context, tx *db.Tx, teamID, keyID string) error
	// OnSenderStop pauses the broadcasts of a sender, in the transaction that suspends a team or deletes a key. The zero
	// value of by stands for the whole team.
	OnSenderStop func(ctx context.Context, tx *db.Tx, teamID string, by ActorRef) error
}

// Service implements the operations on teams and keys.
type Service struct {
	Deps
	trial atomic.Pointer[Quota]
	uses  *LastUses // of API keys

	shorts *lru.Cache[string, uint32] // short ids by id
	longs  *lru.Cache[uint32, string] // ids by short id

	mu    sync.Mutex
	cache map[string]cached // by token hash
	epoch int               // incremented by Forget; results that were read before the last increment are not used
}

type cached struct {
	Actor
	until time.Time
	epoch int
}

// New returns a Service, or an error if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	s := &Service{Deps: d, cache: map[string]cached{}, uses: NewLastUses(d.DB, d.Log, "API keys", setLastUsed)}
	s.SetTrial(c.Trial)
	s.shorts, _ = lru.New[string, uint32](shortIDs) // fails only if the size is not positive
	s.longs, _ = lru.New[uint32, string](shortIDs)
	d.DB.OnHint(HintTopic, func(string) { s.Forget() })
	return s, nil
}

// SetTrial replaces the quota for new teams.
func (s *Service) SetTrial(q Quota) { s.trial.Store(&q) }

// Forget makes each key and grant be looked up again on its next request. Their tokens stay in the cache, because a
// flood of unknown keys would otherwise lock them out; see IsCached.
func (s *Service) Forget() {
	s.mu.Lock()
	s.epoch++
	s.mu.Unlock()
}

// Run writes the keys' times of last use periodically, and once more when ctx is done.
func (s *Service) Run(ctx context.Context) error { return s.uses.Run(ctx) }

// NewKey describes a key to create.
type NewKey struct {
	Name       string
	Permission Permission // "" means FullAccess
	DomainID   string     // only with SendingAccess
	Token      string     // "" generates one; development mode passes its own
}

// CreateKey creates a key for the actor's team. CreateKey returns the key and its token, which cannot be retrieved
// later. CreateKey does not create a key with more rights than the actor has.
func (s *Service) CreateKey(ctx context.Context, by Actor, n NewKey) (Key, string, error) {
	if err := n.check(); err != nil {
		return Key{}, "", err
	}
	if err := by.mayGrant(&n); err != nil {
		return Key{}, "", err
	}
	if n.DomainID != "" {
		switch ok, err := s.DomainExists(ctx, by.TeamID, n.DomainID); {
		case err != nil:
			return Key{}, "", fmt.Errorf("look up the domain of a new key: %w", err)
		case !ok:
			return Key{}, "", fault.Invalidf("domain_id", "The `domain_id` field names no domain of this team.")
		}
	}
	k := n.key(by.TeamID)
	err := s.DB.Update(ctx, func(tx *db.Tx) error {
		insertKey(ctx, tx, &k, keyring.HashAPIKey(n.Token))
		audit.Target(ctx, k.ID)
		return nil
	})
	return s.keyResult(k, n.Token, err)
}

// CreateKeyFor creates a key for the team with the given id or name. If no team has the name, CreateKeyFor creates the
// team in the same transaction, with the given email address as the owner's. If the team exists and has a different
// address, CreateKeyFor returns a fault.
func (s *Service) CreateKeyFor(ctx context.Context, team, email string, n NewKey) (Key, string, error) {
	if err := n.check(); err != nil {
		return Key{}, "", err
	}
	if n.DomainID != "" {
		return Key{}, "", fault.Invalidf("domain_id", "Restrict keys to a domain through the API.")
	}
	email, err := checkEmail(email)
	if err != nil {
		return Key{}, "", err
	}
	var k Key
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		// Two concurrent calls must not create two teams with the same name, because neither team could then be looked
		// up by name.
		if err := tx.Serialize(ctx, "team "+team); err != nil {
			return err
		}
		t, err := find(ctx, tx.Reader, team)
		switch {
		case err == nil && email != "" && email != t.Email:
			return fault.Invalidf("email", "The team %s (%s) exists, with %s as its owner's address. Leave the address out.",
				t.Name, t.ID,
				cmp.Or(t.Email, "nothing"))
		case fault.KindOf(err) == fault.NotFound && !id.Valid(team):
			if t, err = newTeam(team, email); err == nil {
				err = s.add(ctx, tx, &t)
			}
		}
		if err != nil {
			return err
		}
		k = n.key(t.ID)
		insertKey(ctx, tx, &k, keyring.HashAPIKey(n.Token))
		audit.Team(ctx, t.ID)
		audit.Target(ctx, k.ID)
		return nil
	})
	return s.keyResult(k, n.Token, err)
}

// Check validates a new key in the same way as CreateKey, except that the domain may be unknown.
func (n NewKey) Check() error { return n.check() }

// check validates the fields that can be checked without the database, and sets defaults.
func (n *NewKey) check() error {
	if n.Name = strings.TrimSpace(n.Name); n.Name == "" {
		return fault.MissingField("name")
	}
	if err := checkName(n.Name); err != nil {
		return err
	}
	switch n.Permission {
	case "":
		n.Permission = FullAccess
	case FullAccess, SendingAccess:
	default:
		return fault.Invalidf("permission", "The `permission` field must be `full_access` or `sending_access`.")
	}
	if n.DomainID != "" && n.Permission != SendingAccess {
		return fault.Invalidf("domain_id", "The `domain_id` field goes with the permission `sending_access` only.")
	}
	if n.DomainID != "" && !id.Valid(n.DomainID) {
		return fault.New(fault.BadID, "domain_id", "The `domain_id` field must be a valid UUID.")
	}
	if n.Token == "" {
		n.Token = keyring.NewAPIKey()
	}
	if strings.ContainsFunc(n.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fault.Invalidf("token", "An API key must have printable ASCII characters without spaces only.")
	}
	return nil
}

// key returns the Key that n describes, for the given team.
func (n *NewKey) key(teamID string) Key {
	return Key{ID: id.New(), TeamID: teamID, Name: n.Name, Hint: keyring.APIKeyHint(n.Token), Permission: n.Permission,
		DomainID: n.DomainID, CreatedAt: db.Now()}
}

// keyResult returns the created key and its token, or a fault if another key has the same token.
func (s *Service) keyResult(k Key, token string, err error) (Key, string, error) {
	if s.DB.Violates(err, "api_keys_hash") {
		err = fault.Invalidf("token", "This token is in use already.").Because(err)
	}
	if err != nil {
		return Key{}, "", err
	}
	return k, token, nil
}

func checkName(name string) error {
	if utf8.RuneCountInString(name) > maxKeyName || strings.ContainsFunc(name, func(r rune) bool {
		return r < 0x20 ||
			r == 0x7f
	}) {
		return fault.Invalidf("name", "The `name` field must have at most %d characters and no control characters.",
			maxKeyName)
	}
	return nil
}

// EnsureKey creates a key with the given token for the team with the given name, unless some team already has a key
// with this token.
func (s *Service) EnsureKey(ctx context.Context, team, name, token string) error {
	if _, err := s.Authenticate(ctx, token); fault.KindOf(err) != fault.BadCredential {
		return err
	}
	_, _, err := s.CreateKeyFor(ctx, team, "", NewKey{Name: name, Token: token})
	return err
}

// ListKeys returns a page of a team's keys, newest first.
func (s *Service) ListKeys(ctx context.Context, teamID string, p page.Page) ([]Key, bool, error) {
	return listKeys(ctx, s.DB.Reader, teamID, p)
}

// GetKey returns a team's key.
func (s *Service) GetKey(ctx context.Context, teamID, keyID string) (Key, error) {
	return getKey(ctx, s.DB.Reader, teamID, keyID)
}

// RenameKey changes a key's name.
func (s *Service) RenameKey(ctx context.Context, teamID, keyID, name string) error {
	if name = strings.TrimSpace(name); name == "" {
		return fault.MissingField("name")
	}
	if err := checkName(name); err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error { return renameKey(ctx, tx, teamID, keyID, name) })
}

// DeleteKey deletes a key. The key stops working on this node immediately, and on other nodes when the hint about the
// deletion arrives.
func (s *Service) DeleteKey(ctx context.Context, teamID, keyID string) error {
	err := s.DB.Update(ctx, func(tx *db.Tx) error {
		audit.Target(ctx, keyID)
		if _, err := lockTeam(ctx, tx, teamID, "FOR UPDATE"); err != nil {
			return err
		}
		if err := deleteKey(ctx, tx, teamID, keyID); err != nil {
			return err
		}
		if err := s.OnSenderStop(ctx, tx, teamID, ActorRef{KeyActor, keyID}); err != nil {
			return err
		}
		return s.OnKeyDelete(ctx, tx, teamID, keyID)
	})
	if err == nil {
		s.DB.Hint(HintTopic, teamID)
	}
	return err
}

// KeyScopes returns a key's current scopes, or 0 if the key has been deleted.
func (s *Service) KeyScopes(ctx context.Context, r db.Reader, teamID, keyID string) (Scopes, error) {
	return keyScopes(ctx, r, teamID, keyID)
}

// Active reports whether a request that an actor made earlier may still be carried out. For a key or grant, the result
// is true only while it exists; for other actors, the result is always true. Active returns an error for an unknown
// kind of actor, which a later release may have stored.
func (s *Service) Active(ctx context.Context, r db.Reader, teamID string, by ActorRef) (bool, error) {
	switch by.Kind {
	case KeyActor:
		return keyExists(ctx, r, teamID, by.ID)
	case GrantActor:
		return s.GrantActive(ctx, r, teamID, by.ID)
	case UserActor, SystemActor:
		return true, nil
	}
	return false, fmt.Errorf("this release knows no actor of the kind %q", by.Kind)
}

// IsCached reports whether the token belonged to a key or a grant when this node last looked it up. IsCached never
// reads from the database.
func (s *Service) IsCached(token string) bool {
	hash := keyring.HashAPIKey(token)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.cache[hash]
	return ok
}

// Authenticate returns the actor for a token, which is an API key or a grant's access token. Keys are random and looked
// up by their hash, so the response time reveals nothing about existing keys. Unknown tokens are not cached, because
// there could be any number of them.
func (s *Service) Authenticate(ctx context.Context, token string) (Actor, error) {
	hash := keyring.HashAPIKey(token)
	now := time.Now()
	s.mu.Lock()
	c, ok := s.cache[hash]
	epoch := s.epoch
	if ok && c.epoch == epoch && now.Before(c.until) {
		s.mu.Unlock()
		s.markUsed(&c.Actor, now)
		return c.Actor, nil
	}
	s.mu.Unlock()
	a, until, err := s.lookUp(ctx, token, hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if fault.KindOf(err) == fault.BadCredential {
			delete(s.cache, hash)
		}
		return Actor{}, err
	}
	s.markUsed(&a, now)
	if most := now.Add(cacheFor); until.IsZero() || until.After(most) {
		until = most
	}
	if epoch == s.epoch {
		if len(s.cache) >= cacheMax {
			clear(s.cache)
		}
		s.cache[hash] = cached{a, until, epoch}
	}
	return a, nil
}

// lookUp returns the actor for a token that is not cached, and the time until which the actor may be cached. A zero
// time means the normal cache time, cacheFor.
func (s *Service) lookUp(ctx context.Context, token, hash string) (Actor, time.Time, error) {
	if IsAccessToken(token) {
		return s.AuthenticateToken(ctx, token)
	}
	a, err := keyActor(ctx, s.DB.Reader, hash)
	if errors.Is(err, db.ErrNoRows) {
		return a, time.Time{}, fault.New(fault.BadCredential, "", "API key is invalid")
	}
	if err != nil {
		return a, time.Time{}, fmt.Errorf("look up API key: %w", err)
	}
	return a, time.Time{}, nil
}

// markUsed records that a key was used. It does not record the use of a grant, because package grants does that.
func (s *Service) markUsed(a *Actor, now time.Time) {
	if a.Kind == KeyActor {
		s.uses.Mark(a.TeamID, a.ID, now)
	}
}

// KeyActor returns the actor for the key with the given id, in order to carry out a request that the key made earlier.
func (s *Service) KeyActor(ctx context.Context, r db.Reader, teamID, keyID string) (Actor, error) {
	a, err := keyActorOf(ctx, r, teamID, keyID)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return a, fault.NotFoundf("API key not found")
	case err != nil:
		return a, fmt.Errorf("look up API key %s: %w", keyID, err)
	}
	return a, nil
}

// IsAccessToken reports whether a token looks like an access token, that is, a JWT, whose header is a JSON object in
// base64. API keys never have that form.
func IsAccessToken(token string) bool {
	return strings.HasPrefix(token, "eyJ") && strings.Count(token, ".") == 2
}
