package emails

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/sending/search"
)

// These are the labels of the counts in the report from EraseAddress.
const (
	erasedEmails  = "sent emails to nobody else, deleted"
	erasedCopies  = "forwarded emails from it, deleted"
	erasedNames   = "sent emails to others too, in which it was replaced"
	erasedBodies  = "of these, contents deleted because they name it"
	keptUnsettled = "sent emails LEFT, still to be delivered"
	keptUncounted = "sent emails LEFT, too recent"
)

// EraseAddress erases an address from sent emails. If the address is an email's only recipient, EraseAddress deletes
// the email, including its rows and files. If an email has other recipients, EraseAddress replaces the address in the
// email's recipients, subject, tags, events and recorded SMTP conversations. EraseAddress also deletes the email's
// content if it contains the address. If the sender composed the message, the content is always deleted, because its
// header may contain the address. Emails that a rule forwarded are deleted if the address is that of their author.
// Emails that are not settled yet are kept and counted. The search index does not contain the address of an erased
// email any more when EraseAddress returns without an error.
func (s *Service) EraseAddress(ctx context.Context, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	erase := func(some []matchedEmail, err error) error {
		for i := range some {
			if err := s.eraseIn(ctx, a, &some[i], scope.DryRun, &found); err != nil {
				return fmt.Errorf("in email %s: %w", some[i].id, err)
			}
		}
		return err
	}
	eraseOf := func(teamID string) error {
		return db.Walk(ctx, s.DB.Reader, "emails WHERE team_id = $1", "id", []any{db.ID(teamID)}, func(after,
			upTo db.ID) error {
			of := scopeTeam(teamID, after, upTo)
			if err := erase(forwardedFrom(ctx, s.DB.Reader, a, of)); err != nil {
				return err
			}
			return erase(emailsTo(ctx, s.DB.Reader, a, of))
		})
	}
	if scope.All {
		var teamID string
		for teamID, err = nextTeam(ctx, s.DB.Reader, ""); err == nil && teamID != ""; {
			if err = eraseOf(teamID); err == nil {
				teamID, err = nextTeam(ctx, s.DB.Reader, teamID)
			}
		}
	} else {
		// Only emails that belong to the given teams are read.
		for _, teamID := range scope.Teams {
			if err == nil {
				err = eraseOf(teamID)
			}
		}
	}
	if err != nil {
		return found, fmt.Errorf("erase an address: %w", err)
	}
	return found, nil
}

// kind returns the label under which the deletion of an email is counted.
func (e *matchedEmail) kind() string {
	if e.copied {
		return erasedCopies
	}
	return erasedEmails
}

func (s *Service) eraseIn(ctx context.Context, a erasure.Address, e *matchedEmail, dryRun bool,
	found *erasure.Report) error {
	switch {
	case !e.settled:
		found.Leave(keptUnsettled, erasure.LeftLater, 1)
		return nil
	case e.others > 0:
		return s.replaceIn(ctx, a, e, dryRun, found)
	case dryRun:
		found.Add(e.kind(), 1)
		return nil
	}
	gone, err := s.removeEmails(ctx, e.teamID, []string{e.id}, true, func(tx *db.Tx, _ []string) error {
		return search.Break(ctx, tx, e.teamID, e.id)
	})
	if len(gone) > 0 {
		found.Add(e.kind(), 1)
		err = errors.Join(err, s.Index.Forget(ctx, e.teamID, e.id))
	} else if err == nil {
		found.Leave(keptUncounted, erasure.LeftSoon, 1)
	}
	return err
}

// replaceIn replaces the address in an email that also has other recipients.
func (s *Service) replaceIn(ctx context.Context, a erasure.Address, e *matchedEmail, dryRun bool,
	found *erasure.Report) error {
	named, err := contentNames(ctx, s.DB.Reader, a, e.teamID, e.id)
	if err != nil {
		return err
	}
	found.Add(erasedNames, 1)
	if named {
		found.Add(erasedBodies, 1)
	}
	if dryRun {
		return nil
	}
	if named {
		if err := s.removeContents(ctx, e.teamID, []string{e.id}, func(*db.Tx) {}); err != nil {
			return err
		}
	}
	// All replacements run in one transaction. If the transaction fails, a later run finds the email again by its
	// recipient.
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		if err := replaceInEmail(ctx, tx, a, e.teamID, e.id); err != nil {
			return err
		}
		if err := search.Break(ctx, tx, e.teamID, e.id); err != nil {
			return err
		}
		if err := replaceRecipient(ctx, tx, a, e.teamID, e.id); err != nil {
			return err
		}
		return replaceInEvents(ctx, tx, a, e.teamID, e.id)
	})
	if err != nil {
		return err
	}
	return s.Index.Forget(ctx, e.teamID, e.id)
}

// replaceInLists returns the stored recipient lists of an email, with the address replaced by the placeholder.
func replaceInLists(a erasure.Address, text string) (string, error) {
	var to recipientLists
	if err := json.Unmarshal([]byte(text), &to); err != nil {
		return "", fmt.Errorf("read recipients: %w", err)
	}
	for _, list := range [][]string{to.To, to.Cc, to.Bcc, to.ReplyTo} {
		for i, mailbox := range list {
			if a.Is(mailbox) {
				list[i] = erasure.Placeholder
			}
		}
	}
	encoded, err := json.Marshal(to)
	if err != nil {
		return "", fmt.Errorf("encode recipients: %w", err)
	}
	return string(encoded), nil
}

// anyContains reports whether any of the strings contains the address.
func anyContains(a erasure.Address, texts ...string) bool { return slices.ContainsFunc(texts, a.In) }
