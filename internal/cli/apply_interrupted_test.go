package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// loses applies a file and interrupts the run when it has created a resource and waits for the response.
func (s *setup) loses(text string) {
	s.t.Helper()
	s.write(text)
	before := s.counts()
	for allowed := 1; s.counts() == before; allowed++ {
		address, _ := s.crashing(allowed)
		if out, errOut, code := s.command("apply", s.file, "--url", address); code == 0 {
			s.t.Fatalf("the run was not interrupted\n%s%s", out, errOut)
		}
	}
}

const (
	billingKey = "[api_keys.billing]\npermission = \"sending_access\"\n"
	adminKey   = "[api_keys.admin]\npermission = \"full_access\"\n"
)

// If runs are interrupted while they create different API keys, the next run replaces all of these keys.
func TestApplyLosesSeveralTokens(t *testing.T) {
	t.Parallel()
	s := newSetup(t, migratedInstallation(t, "sqlite"), "")
	s.loses(billingKey)
	s.loses(billingKey + adminKey)
	secrets := filepath.Join(s.dir, "secrets.json")
	if out := s.apply(0, "--secrets-file", secrets); !strings.Contains(out, "± api_keys admin (nobody saw its token") ||
		!strings.Contains(out, "± api_keys billing (nobody saw its token") {
		t.Errorf("the plan is\n%s", out)
	}
	var all map[string]map[string]string
	text, err := os.ReadFile(secrets)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || len(all["api_keys"]) != 2 {
		t.Fatalf("the secrets are %s, error %v", text, err)
	}
	for name, token := range all["api_keys"] {
		if _, err := s.n.Teams.Authenticate(t.Context(), token); err != nil {
			t.Errorf("the token of %s: %v", name, err)
		}
	}
	s.apply(0, "--drift")
}

// A key that an interrupted run has created can be deleted after its table was removed from the file.
func TestApplyPrunesInterruptedCreation(t *testing.T) {
	t.Parallel()
	s := newSetup(t, migratedInstallation(t, "sqlite"), "")
	before := s.counts()
	s.loses(billingKey)
	s.write("")
	if out := s.apply(0); !strings.Contains(out, "? api_keys billing is no longer in the file; --prune deletes it\n") {
		t.Errorf("applying the file without the key prints\n%s", out)
	}
	s.write(billingKey)
	if out := s.apply(0, "--plan"); !strings.Contains(out, "± api_keys billing") {
		t.Errorf("the plan for the file with the key is\n%s", out)
	}
	s.write("")
	s.apply(0, "--prune")
	if got := s.counts(); got != before {
		t.Errorf("after --prune the team has %s, want %s", got, before)
	}
	s.apply(0, "--drift", "--prune")
}

// The next run shows the signing secret of a webhook that an interrupted run has created.
func TestApplyShowsSecretOfInterruptedCreation(t *testing.T) {
	t.Parallel()
	s := newSetup(t, migratedInstallation(t, "sqlite"), "")
	s.loses("[webhooks.\"https://hooks.acme.example/\"]\nevents = [\"email.sent\"]\n")
	for i, want := range []bool{true, false} {
		if out := s.apply(0); strings.Contains(out, "whsec_") != want ||
			!strings.Contains(out, "No changes: the team matches the file.\n") {
			t.Errorf("run %d after the interruption prints\n%s", i+1, out)
		}
	}
}
