package forwards

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/signing"
)

const sealPurpose = "forwarding rule"

// Sealed lists the columns with encrypted secrets.
var Sealed = signing.Columns("forwards", sealPurpose)

// untilRotation is the end of the use of a team's secret for a rule that had no secret of its own. A rotation ends this
// use earlier. It is the last time that the database can store.
var untilRotation = time.UnixMicro(1<<63 - 1)

func (s *Service) secrets() signing.Sealer {
	return signing.Sealer{Keys: s.p.Keys, Purpose: sealPurpose}
}

// signingKeys returns the keys that sign a request for a rule. Rules of earlier programs have no secret of their own:
// their receivers verify requests with the secret of the team.
func (s *Service) signingKeys(r *Rule) ([][]byte, error) {
	if len(r.secret.Sealed) == 0 {
		return signing.TeamKeys(s.p.Keys, r.TeamID), nil
	}
	return s.secrets().Signing(r.ID, &r.secret, s.c.Now())
}

// GetSecret returns a rule with its signing secret, which is "" if the rule has an address. A rule with a URL and
// without a secret gets one. Until a rotation, its requests are also signed with the secret of the team, with which its
// receiver verifies them.
func (s *Service) GetSecret(ctx context.Context, teamID, domainID, ruleID string) (Rule, error) {
	r, err := getRule(ctx, s.p.DB.Reader, teamID, domainID, ruleID)
	if err == nil && r.URL != "" && len(r.secret.Sealed) == 0 {
		r, err = s.addSecret(ctx, teamID, domainID, ruleID)
	}
	if err == nil && r.URL != "" {
		r.Secret, err = s.secrets().Show(r.ID, &r.secret)
	}
	return r, err
}

// addSecret creates the secret of a rule that has none, and returns the rule.
func (s *Service) addSecret(ctx context.Context, teamID, domainID, ruleID string) (r Rule, err error) {
	_, sealed, err := s.secrets().New(ruleID)
	if err != nil {
		return r, err
	}
	// The request only asked to see the secret, which its caller records.
	ctx = audit.Without(ctx)
	return r, s.p.DB.Update(ctx, func(tx *db.Tx) error {
		if r, err = lockRule(ctx, tx, teamID, domainID, ruleID); err != nil || len(r.secret.Sealed) > 0 {
			return err
		}
		if err := s.useTeamSecret(&r); err != nil {
			return err
		}
		r.secret.Replace(sealed, tx.Now())
		r.secret.OldUntil = untilRotation
		saveSecret(ctx, tx, &r)
		return nil
	})
}

// useTeamSecret makes the secret of the team that of a rule without one, so that the secret can be replaced.
func (s *Service) useTeamSecret(r *Rule) (err error) {
	r.secret.Sealed, err = s.secrets().Seal(r.ID, signing.TeamKeys(s.p.Keys, r.TeamID)[0])
	return err
}

// Rotate replaces the secret of a rule with a URL, and returns the new secret. For [signing.Overlap], requests are also
// signed with the previous secret, but not with older secrets.
func (s *Service) Rotate(ctx context.Context, teamID, domainID, ruleID string) (secret string, err error) {
	secret, sealed, err := s.secrets().New(ruleID)
	if err != nil {
		return "", err
	}
	return secret, s.p.DB.Update(ctx, func(tx *db.Tx) error {
		r, err := lockRule(ctx, tx, teamID, domainID, ruleID)
		switch {
		case err != nil:
			return err
		case r.URL == "":
			return fault.Invalidf("", "The rule forwards mail to an address, so that it has no signing secret. Only rules "+
				"with a `url` have one.")
		case len(r.secret.Sealed) == 0:
			if err := s.useTeamSecret(&r); err != nil {
				return err
			}
		}
		r.secret.Replace(sealed, tx.Now())
		saveSecret(ctx, tx, &r)
		audit.Detail(ctx, "rule "+r.ID) // the target of the entry is the domain
		return nil
	})
}
