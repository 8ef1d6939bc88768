package domains

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/reseal"
)

// published returns what publishedKeys returns for some domains.
func published(t *testing.T, s *Service, domainIDs ...string) map[string][]PublishedKey {
	t.Helper()
	all, err := s.publishedKeys(t.Context(), s.DB.Reader, domainIDs...)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// addKey inserts a key of a domain with the given selector and state.
func addKey(t *testing.T, s *Service, d *Domain, selector string, state KeyState) key {
	t.Helper()
	k := key{id: id.New(), domainID: d.ID, teamID: d.TeamID, selector: selector, algorithm: algorithmEd25519,
		state: state}
	row, err := s.newKey(k.algorithm, k.id)
	if err != nil {
		t.Fatal(err)
	}
	if k.record = row.record; state == KeyNext {
		k.sealed = row.sealed
	}
	err = s.DB.Update(t.Context(), func(tx *db.Tx) error {
		insertKey(t.Context(), tx, &k)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The DNS must show the keys that sign and those of rotations, and a revoked key without its public key.
// Records of delegated zones restrict keys. Revoked keys have no further tags.
func TestRestrictedRecords(t *testing.T) {
	t.Parallel()
	for record, want := range map[string]string{
		"v=DKIM1; k=rsa; p=AAp=": "v=DKIM1; k=rsa; s=email:tlsrpt; t=s; p=AAp=",
		"v=DKIM1; p=":            "v=DKIM1; p=",
		"":                       "",
	} {
		if got := restricted(record); got != want || want != "v=DKIM1; p=" && want != "" && !verifiesLike(got, record) {
			t.Errorf("%q becomes %q", record, got)
		}
	}
}

func TestPublishedKeys(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, one, two := trustingIn(t, d)
		s.c.Selector, s.c.SelectorEd25519 = "first", "first-ed"
		next, retired := addKey(t, s, &one, "n", KeyNext), addKey(t, s, &one, "r", KeyRetired)
		addKey(t, s, &one, "gone", KeyRevoked)
		want := map[string][]PublishedKey{one.ID: {{"first", one.rsa.record}, {"first-ed", one.ed25519.record},
			{"n", next.record}, {"r", retired.record}, {"gone", "v=DKIM1; p="}},
			two.ID: {{"first", two.rsa.record}, {"first-ed", two.ed25519.record}}}
		if diff := cmp.Diff(want, published(t, s, one.ID, two.ID, dbtest.ID("none"))); diff != "" {
			t.Error(diff)
		}
		if err := s.Delete(t.Context(), dbtest.ID("team"), one.ID); err != nil {
			t.Fatal(err)
		}
		left, err := keysOf(t.Context(), d.Reader, one.TeamID, one.ID)
		if err != nil || len(left) != 0 || len(published(t, s, one.ID)) != 0 {
			t.Errorf("keys of a deleted domain: %+v, %v", left, err)
		}
	})
}

// A rotation of the secret key seals the private keys of rotations again.
func TestKeysOfRotationsAreResealed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, one, _ := trustingIn(t, d)
		next := addKey(t, s, &one, "n", KeyNext)
		addKey(t, s, &one, "r", KeyRetired)
		current := make([]byte, 32)
		current[0] = 1
		keys, err := keyring.New(current, make([]byte, 32))
		if err != nil {
			t.Fatal(err)
		}
		done, err := reseal.Run(context.Background(), d, keys, Sealed...)
		if err != nil || done.Lost != 0 || done.Resealed != 5 {
			t.Errorf("%+v, %v", done, err)
		}
		if keys, err = keyring.New(current); err != nil {
			t.Fatal(err)
		}
		all, err := keysOf(t.Context(), d.Reader, one.TeamID, one.ID)
		if err != nil || len(all) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		if der, err := keys.Open(sealPurpose, all[0].sealed, []byte(next.id)); err != nil || len(der) == 0 {
			t.Errorf("the key that will sign: %v", err)
		}
	})
}
