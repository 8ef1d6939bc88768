package grants

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/keyring"
)

const issuer = "https://postrider.test"

func newSigner(t testing.TB, d *db.DB) *Service {
	t.Helper()
	keys, err := keyring.New(make([]byte, keyring.MasterSize))
	if err != nil {
		t.Fatal(err)
	}
	return newService(Config{Issuer: issuer, Resources: []string{issuer, issuer + "/mcp"}}, Deps{DB: d, Keys: keys})
}

// signed returns a token with the given claims, signed with the current key.
func (s *Service) signed(t testing.TB, c any, change func(o *jose.SignerOptions)) string {
	t.Helper()
	k, err := s.signer(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o := (&jose.SignerOptions{}).WithType(tokenType).WithHeader("kid", k.id)
	if change != nil {
		change(o)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: k.private}, o)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func right() claims {
	return claims{Issuer: issuer, Audience: jwt.Audience{issuer},
		Expiry: jwt.NewNumericDate(time.Now().Add(time.Minute))}
}

func TestForgedTokens(t *testing.T) {
	t.Parallel()
	s := newSigner(t, dbtest.SQLite(t))
	refused := func(name, token string) {
		t.Helper()
		if c, err := s.verify(t.Context(), token, time.Now()); fault.KindOf(err) != fault.BadCredential ||
			c.Issuer != "" {
			t.Errorf("%s: %+v, error %v", name, c, err)
		}
	}
	good := s.signed(t, right(), nil)
	if _, err := s.verify(t.Context(), good, time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(c *claims){
		"of another issuer":  func(c *claims) { c.Issuer = "https://a.example" },
		"for somebody else":  func(c *claims) { c.Audience = jwt.Audience{"https://a.example"} },
		"for nobody":         func(c *claims) { c.Audience = nil },
		"expired":            func(c *claims) { c.Expiry = jwt.NewNumericDate(time.Now().Add(-time.Second)) },
		"without expiration": func(c *claims) { c.Expiry = nil },
	} {
		c := right()
		change(&c)
		refused(name, s.signed(t, c, nil))
	}
	refused("of another type", s.signed(t, right(), func(o *jose.SignerOptions) { o.WithType("JWT") }))
	refused("of an unknown key", s.signed(t, right(), func(o *jose.SignerOptions) { o.WithHeader("kid", "x") }))
	refused("without a key", s.signed(t, right(), func(o *jose.SignerOptions) { o.WithHeader("kid", "") }))
	refused("too long", good+strings.Repeat("x", tokenMax))
	refused("garbage", "eyJ.e30.x")

	head, rest, _ := strings.Cut(good, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	altered := right()
	altered.Scope = "full_access"
	text, err := json.Marshal(altered)
	if err != nil {
		t.Fatal(err)
	}
	refused("altered", head+"."+base64.RawURLEncoding.EncodeToString(text)+"."+signature)
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"at+jwt"}`))
	refused("not signed", none+"."+payload+".")

	k, err := s.signer(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	// The test signs a token, using the public key as an HMAC secret. A verifier that trusts the algorithm in the token's
	// header would accept the token.
	public, err := x509.MarshalPKIXPublicKey(k.private.Public())
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]jose.SigningKey{"by the public key": {Algorithm: jose.HS256, Key: public},
		"by another key": {Algorithm: jose.ES256, Key: generate(t)}} {
		signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType(tokenType).WithHeader("kid", k.id))
		if err != nil {
			t.Fatal(err)
		}
		token, err := jwt.Signed(signer).Claims(right()).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		refused(name, token)
	}
}

func generate(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Verifying many tokens with unknown key ids causes at most one database query per second.
func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	s := newSigner(t, dbtest.SQLite(t))
	s.signed(t, right(), nil)
	read := func() time.Time {
		if k, err := s.verifier(t.Context(), "x"); k != nil || err != nil {
			t.Fatalf("%v, error %v", k, err)
		}
		return s.signing.read
	}
	s.signing.read = time.Now().Add(-2 * keysRetry)
	first := read()
	for range 100 {
		if again := read(); again != first && again.Sub(first) < keysRetry {
			t.Fatalf("read again after %v", again.Sub(first))
		}
	}
}

// Signing keys are rotated without a gap. The next key is published a day before its first use, and an old key stays
// published as long as tokens signed with it are valid.
func TestRotateKeys(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSigner(t, d)
		start, day := time.Now(), 24*time.Hour
		published := map[string]time.Time{}
		signed := map[string]time.Time{}
		order := []string{}
		for now := start; now.Before(start.Add(400 * day)); now = now.Add(8 * time.Hour) {
			if err := s.rotateKeys(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			s.signing.forget()
			k, err := s.signer(t.Context(), now)
			if err != nil {
				t.Fatal(err)
			}
			if signed[k.id].IsZero() {
				order = append(order, k.id)
				if before, ok := published[k.id]; len(order) > 1 && (!ok || now.Sub(before) < day-8*time.Hour) {
					t.Errorf("key %d signs %v after it was published", len(order), now.Sub(before))
				}
			}
			signed[k.id] = now
			all, err := s.keys(t.Context(), keysCached)
			if err != nil || len(all) > 3 {
				t.Fatalf("%d keys, error %v", len(all), err)
			}
			there := map[string]bool{}
			for _, k := range all {
				there[k.id] = true
				if published[k.id].IsZero() {
					published[k.id] = now
				}
			}
			for id, last := range signed {
				if !there[id] && now.Sub(last) < accessLife {
					t.Errorf("a key is gone %v after it has signed", now.Sub(last))
				}
			}
		}
		if len(order) != 5 {
			t.Errorf("%d keys have signed in 400 days", len(order))
		}
		set, err := s.PublicKeys(t.Context())
		if err != nil || len(set.Keys) == 0 {
			t.Fatalf("%+v, error %v", set, err)
		}
		for _, k := range set.Keys {
			if !k.IsPublic() || !k.Valid() || k.Algorithm != "ES256" || k.Use != "sig" || k.KeyID == "" {
				t.Errorf("%+v", k)
			}
		}
	})
}

// If several nodes start at the same time, they create only one signing key between them.
func TestFirstKey(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ids := make(chan string, 6)
		for range cap(ids) {
			s := newSigner(t, d)
			go func() {
				k, err := s.signer(context.Background(), d.Now())
				if err != nil {
					t.Error(err)
				}
				ids <- k.id
			}()
		}
		first := <-ids
		for range cap(ids) - 1 {
			if other := <-ids; other != first {
				t.Errorf("keys %s and %s", first, other)
			}
		}
	})
}

// When the installation's secret key has changed, the service creates new signing keys, because it cannot decrypt the
// old ones.
func TestOtherSecretKey(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		before, s := newSigner(t, d), newSigner(t, d)
		old := before.signed(t, right(), nil)
		keys, err := keyring.New([]byte(strings.Repeat("k", keyring.MasterSize)))
		if err != nil {
			t.Fatal(err)
		}
		s.Keys = keys
		if _, err := s.verify(t.Context(), old, time.Now()); fault.KindOf(err) != fault.BadCredential {
			t.Errorf("a token by a key of before: %v", err)
		}
		if set, err := s.PublicKeys(t.Context()); err != nil || len(set.Keys) != 1 {
			t.Errorf("%+v, error %v", set, err)
		}
		if _, err := s.verify(t.Context(), s.signed(t, right(), nil), time.Now()); err != nil {
			t.Error(err)
		}
		if err := s.RotateKeys(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
