package users_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/descope/virtualwebauthn"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

// device is a simulated authenticator with one passkey.
type device struct {
	*testing.T
	site          virtualwebauthn.RelyingParty
	authenticator virtualwebauthn.Authenticator
	key           virtualwebauthn.Credential
}

func newDevice(t *testing.T) *device {
	return &device{t, virtualwebauthn.RelyingParty{Name: "Postrider", ID: "postrider.test", Origin: publicURL},
		virtualwebauthn.NewAuthenticator(), newKey()}
}

// newKey creates a passkey's key pair. The library drops leading zeros when it encodes a coordinate of a public key,
// which affects one key in 128. Real authenticators keep the zeros (RFC 9053 section 7.1.1), so newKey skips such keys.
func newKey() virtualwebauthn.Credential {
	const size = 77 // length in bytes of a complete CBOR-encoded key
	for {
		if key := virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2); len(key.Key.AttestationData()) == size {
			return key
		}
	}
}

// register returns the device's response to a challenge for a new passkey.
func (v *device) register(c users.Challenge) []byte {
	v.Helper()
	o, err := virtualwebauthn.ParseAttestationOptions(string(c.Options))
	if err != nil {
		v.Fatal(err)
	}
	v.authenticator.Options.UserHandle = []byte(o.UserID)
	return []byte(virtualwebauthn.CreateAttestationResponse(v.site, v.authenticator, v.key, *o))
}

// sign returns the response to a challenge, signed with the device's passkey.
func (v *device) sign(c users.Challenge) []byte {
	v.Helper()
	o, err := virtualwebauthn.ParseAssertionOptions(string(c.Options))
	if err != nil {
		v.Fatal(err)
	}
	return []byte(virtualwebauthn.CreateAssertionResponse(v.site, v.authenticator, v.key, *o))
}

// passkey registers a new passkey for a session's user.
func (x *fixture) passkey(s users.Session, name string) (*device, users.Passkey) {
	x.Helper()
	v := newDevice(x.T)
	c, err := x.BeginPasskey(x.Context(), s)
	x.must(err)
	p, err := x.FinishPasskey(x.Context(), s, c.Token, name, v.register(c), home)
	x.must(err)
	return v, p
}

// signInByPasskey signs in by passkey.
func (x *fixture) signInByPasskey(v *device) (users.Outcome, error) {
	x.Helper()
	c, err := x.BeginPasskeySignIn(x.Context())
	x.must(err)
	return x.FinishPasskeySignIn(x.Context(), c.Token, v.sign(c), home)
}

func TestPasskeys(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		s := x.session(u.Email, password)
		v, made := x.passkey(s, "Laptop")
		if made.Name != "Laptop" || !made.LastUsedAt.IsZero() {
			t.Errorf("made %+v", made)
		}
		x.withTOTP(s)
		x.pass(time.Minute)
		v.key.Counter = 1
		out, err := x.signInByPasskey(v) // signing in by passkey needs neither a two-factor code nor an email address
		x.must(err)
		if got := x.of(out); got.UserID != u.ID || !got.Fresh(x.now()) {
			t.Errorf("session %+v", got)
		}
		if all, err := x.Passkeys(ctx, u.ID); err != nil || len(all) != 1 || !all[0].LastUsedAt.Equal(x.now()) {
			t.Errorf("passkeys %+v, %v", all, err)
		}

		// A user can sign in by passkey while the account is locked.
		for range 11 {
			_, err = x.attempt(u.Email, "not the password")
		}
		x.is(err, fault.TooFast)
		v.key.Counter = 2
		out, err = x.signInByPasskey(v)
		x.must(err)
		s = x.of(out)

		// Signing in by passkey renews the proof of identity.
		x.pass(time.Hour)
		if err := x.RemovePasskey(ctx, s, made.ID, home); !errors.Is(err, users.ErrProve) {
			t.Errorf("removed without a proof: %v", err)
		}
		c, err := x.BeginPasskeyProof(ctx, s)
		x.must(err)
		v.key.Counter = 3
		x.must(x.FinishPasskeyProof(ctx, s, c.Token, v.sign(c), home))
		if s = x.of(out); !s.Fresh(x.now()) {
			t.Error("the proof was not renewed")
		}
		x.is(x.FinishPasskeyProof(ctx, s, c.Token, v.sign(c), home), fault.BadCredential)

		x.must(x.RenamePasskey(ctx, s, made.ID, "Old laptop", home))
		x.is(x.RenamePasskey(ctx, s, made.ID, " ", home), fault.Missing)
		eve := x.session(x.user("eve@example.com").Email, password)
		x.is(x.RenamePasskey(ctx, eve, made.ID, "mine", home), fault.NotFound)
		x.is(x.RemovePasskey(ctx, eve, made.ID, home), fault.NotFound)
		if did := x.took(); strings.Count(did, "passkey_renamed") != 1 {
			t.Errorf("recorded %q", did)
		}
		if all, err := x.Passkeys(ctx, u.ID); err != nil || all[0].Name != "Old laptop" {
			t.Errorf("passkeys %+v, %v", all, err)
		}
		x.must(x.RemovePasskey(ctx, s, made.ID, home))
		v.key.Counter = 4
		_, err = x.signInByPasskey(v)
		x.is(err, fault.BadCredential)
	})
}

// TestPasskeysAreChecked checks that invalid responses to challenges are refused.
func TestPasskeysAreChecked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		s := x.session(u.Email, password)
		v, _ := x.passkey(s, "")
		v.key.Counter = 10
		c, err := x.BeginPasskeySignIn(ctx)
		x.must(err)
		answer := v.sign(c)
		_, err = x.FinishPasskeySignIn(ctx, c.Token, answer, home)
		x.must(err)

		wrong := func(name string, token string, answer []byte) {
			t.Helper()
			if _, err := x.FinishPasskeySignIn(ctx, token, answer, home); fault.KindOf(err) != fault.BadCredential {
				t.Errorf("%s: %v", name, err)
			}
		}
		wrong("the same answer again", c.Token, answer)
		v.key.Counter = 11
		wrong("the same challenge again", c.Token, v.sign(c))
		next, err := x.BeginPasskeySignIn(ctx)
		x.must(err)
		wrong("the answer to another challenge", next.Token, answer)
		wrong("no answer", next.Token, []byte(`{}`))
		wrong("no JSON", next.Token, []byte("\x00"))
		wrong("a long answer", next.Token, []byte(strings.Repeat(" ", 1<<20)))
		wrong("no token", "", v.sign(next))
		proof, err := x.BeginPasskeyProof(ctx, s)
		x.must(err)
		wrong("a challenge of another kind", proof.Token, v.sign(proof))

		phished := *v
		phished.site.Origin = "https://postrider.example"
		wrong("another origin", next.Token, phished.sign(next))
		elsewhere := *v
		elsewhere.site.ID = "postrider.example"
		wrong("another site", next.Token, elsewhere.sign(next))
		unverified := *v
		unverified.authenticator.Options.UserNotVerified = true
		wrong("a user who was not verified", next.Token, unverified.sign(next))
		forged := *v
		forged.key.Key = newKey().Key
		wrong("another key", next.Token, forged.sign(next))
		stranger := *v
		stranger.key = newKey()
		wrong("an unknown passkey", next.Token, stranger.sign(next))
		nobody := *v
		nobody.authenticator.Options.UserHandle = make([]byte, 32)
		wrong("an unknown user", next.Token, nobody.sign(next))

		x.took()
		copied := *v
		copied.key.Counter = 9
		wrong("a counter that went back", next.Token, copied.sign(next))
		if did := x.took(); did != "sign_in_failed" {
			t.Errorf("recorded %q", did)
		}
		x.pass(5 * time.Minute)
		wrong("an old challenge", next.Token, v.sign(next))
		x.must(x.SetDisabled(ctx, u.ID, true))
		_, err = x.signInByPasskey(v)
		x.is(err, fault.BadCredential)
	})
}

func TestNewPasskeysAreChecked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		s := x.session(u.Email, password)
		eve := x.session(x.user("eve@example.com").Email, password)
		c, err := x.BeginPasskey(ctx, s)
		x.must(err)
		v := newDevice(t)
		answer := v.register(c)
		_, err = x.FinishPasskey(ctx, eve, c.Token, "", answer, home)
		x.is(err, fault.BadCredential)
		_, err = x.FinishPasskey(ctx, s, c.Token, "", answer, home)
		x.must(err)
		_, err = x.FinishPasskey(ctx, s, c.Token, "", answer, home)
		x.is(err, fault.BadCredential)
		again, err := x.BeginPasskey(ctx, s)
		x.must(err)
		if o, err := virtualwebauthn.ParseAttestationOptions(string(again.Options)); err != nil ||
			!v.key.IsExcludedForAttestation(*o) {
			t.Errorf("the authenticator is not told of the passkey that it has: %v", err)
		}
		_, err = x.FinishPasskey(ctx, s, again.Token, "", v.register(again), home)
		x.is(err, fault.Invalid)
		other, err := x.BeginPasskey(ctx, eve)
		x.must(err)
		_, err = x.FinishPasskey(ctx, eve, other.Token, "", v.register(other), home)
		x.is(err, fault.Invalid) // refused because another user has a passkey with this id
		unverified := newDevice(t)
		unverified.authenticator.Options.UserNotVerified = true
		other, err = x.BeginPasskey(ctx, eve)
		x.must(err)
		_, err = x.FinishPasskey(ctx, eve, other.Token, "", unverified.register(other), home)
		x.is(err, fault.BadCredential)

		// Check the options that are sent to the browser.
		var asked struct {
			PublicKey struct {
				RP                     struct{ ID string }
				AuthenticatorSelection struct{ ResidentKey, UserVerification string }
				Attestation            string
			}
		}
		x.must(json.Unmarshal(again.Options, &asked))
		if p := asked.PublicKey; p.RP.ID != "postrider.test" || p.AuthenticatorSelection.ResidentKey != "required" ||
			p.AuthenticatorSelection.UserVerification != "required" || p.Attestation == "direct" {
			t.Errorf("options %+v", p)
		}
	})
}

// TestChallengeAtOnce checks that only one of several concurrent uses of the same response is accepted.
func TestChallengeAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		u := x.user("ada@example.com")
		v, _ := x.passkey(x.session(u.Email, password), "")
		c, err := x.BeginPasskeySignIn(t.Context())
		x.must(err)
		answer := v.sign(c)
		var wg sync.WaitGroup
		errs := make([]error, 5)
		for i := range errs {
			wg.Go(func() { _, errs[i] = x.FinishPasskeySignIn(t.Context(), c.Token, answer, home) })
		}
		wg.Wait()
		in := 0
		for _, err := range errs {
			if err == nil {
				in++
			} else {
				x.is(err, fault.BadCredential)
			}
		}
		if in != 1 {
			t.Errorf("one answer signed in %d times", in)
		}
	})
}

// TestLastMeans checks that users cannot remove their last way to sign in.
func TestLastMeans(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u, err := x.Create(ctx, users.NewUser{Email: "ada@example.com"})
		x.must(err)
		var s users.Session
		x.must(x.d.Update(ctx, func(tx *db.Tx) error {
			token, err := x.StartIn(ctx, tx, u, "invitation", home)
			tx.AfterCommit(func() { s, _, _ = x.Session(ctx, token) })
			return err
		}))
		_, one := x.passkey(s, "one")
		_, two := x.passkey(s, "two")
		x.must(x.RemovePasskey(ctx, s, one.ID, home))
		x.is(x.RemovePasskey(ctx, s, two.ID, home), fault.Forbidden)
		x.must(x.SetPassword(ctx, s, "", password, home))
		x.must(x.RemovePasskey(ctx, s, two.ID, home))
	})
}

func TestPasskeysNeedAName(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for url, work := range map[string]bool{"https://mail.example.com": true, "http://localhost:8080": true,
			"http://127.0.0.1:8080": false, "https://[2001:db8::1]": false, "": false} {
			x := newFixture(t, d, users.Config{PublicURL: url})
			if x.PasskeysEnabled() != work {
				t.Errorf("%q: passkeys work: %v", url, !work)
			}
			if _, err := x.BeginPasskeySignIn(t.Context()); (err == nil) != work {
				t.Errorf("%q: %v", url, err)
			}
		}
	})
}

// TestPasskeyChangesNameTheirRequest checks that audit entries about passkeys and linked accounts name the client of
// the request that made the change, not the client that signed in.
func TestPasskeyChangesNameTheirRequest(t *testing.T) {
	t.Parallel()
	eachOIDC(t, func(t *testing.T, x *fixture, i *issuer) {
		ctx := t.Context()
		office := users.Client{Address: "198.51.100.7", UserAgent: "Browser/2"}
		s := x.session(x.user("ada@example.com").Email, password)
		x.took()
		v := newDevice(t)
		c, err := x.BeginPasskey(ctx, s)
		x.must(err)
		made, err := x.FinishPasskey(ctx, s, c.Token, "Laptop", v.register(c), office)
		x.must(err)
		x.must(x.RenamePasskey(ctx, s, made.ID, "Old laptop", office))
		v.key.Counter = 7
		c, err = x.BeginPasskeyProof(ctx, s)
		x.must(err)
		x.must(x.FinishPasskeyProof(ctx, s, c.Token, v.sign(c), office))
		v.key.Counter = 3 // as a copy of the passkey would have
		c, err = x.BeginPasskeyProof(ctx, s)
		x.must(err)
		x.is(x.FinishPasskeyProof(ctx, s, c.Token, v.sign(c), office), fault.BadCredential)
		x.must(x.RemovePasskey(ctx, s, made.ID, office))

		flow, err := x.BeginOIDC(ctx, &s)
		x.must(err)
		state, code := i.visit(flow.URL, as("s1", "ada@example.com", true))
		_, err = x.FinishOIDC(ctx, &s, flow.Cookie, state, code, "", office)
		x.must(err)
		linked, err := x.Identities(ctx, s.UserID)
		x.must(err)
		x.must(x.Unlink(ctx, s, linked[0].ID, office))

		x.settle()
		entries, _, _, err := x.Audit.List(ctx, "", audit.Filter{}, page.Page{Limit: 100})
		x.must(err)
		recorded := map[string]int{}
		for _, e := range entries {
			if x.logged[e.ID] {
				continue
			}
			recorded[e.Action]++
			if e.Address != office.Address || e.UserAgent != office.UserAgent {
				t.Errorf("%s names %s and %s", e.Action, e.Address, e.UserAgent)
			}
		}
		for _, action := range []string{audit.FactorAdded, "user.passkey_renamed", audit.UserSignInFailed,
			audit.FactorRemoved, audit.IdentityLinked, audit.IdentityRemoved} {
			if recorded[action] != 1 {
				t.Errorf("%s is recorded %d times: %v", action, recorded[action], recorded)
			}
		}
	})
}
