package broadcasts

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// assign returns the variant that a contact receives, and whether the contact is held out. The result now says whether
// the contact is to be handled in the current phase. The assignment depends only on the ids of the broadcast and the
// contact, so it stays the same if a page or the whole audience is processed again.
func (b *Broadcast) assign(contactID string) (variant int, held, now bool) {
	if b.Options.HoldOut == 0 && len(b.Variants) == 0 {
		return 0, false, true
	}
	sum := sha256.Sum256([]byte(b.ID + contactID))
	percent := func(hash []byte) float64 {
		return float64(binary.BigEndian.Uint64(hash)) / (1 << 64) * 100
	}
	if held = percent(sum[:8]) < b.Options.HoldOut; held {
		return 0, true, b.phase != walkRest
	}
	if len(b.Variants) == 0 {
		return 0, false, true
	}
	tested := percent(sum[8:16]) < b.Options.TestShare
	if b.phase == walkRest {
		return b.Winner, false, !tested
	}
	return int(binary.BigEndian.Uint64(sum[16:24]) % uint64(len(b.Variants))), false, tested
}

// choose chooses the winner of an A/B test when the waiting time is over, and then starts the next phase.
func (r *run) choose(ctx context.Context, read *Broadcast) (bool, error) {
	winner := read.Winner
	if winner < 0 && read.Options.Metric != ByHand && !read.nextAt.After(r.s.p.DB.Now()) {
		all, _, _, err := tallies(ctx, r.s.p.DB.Reader, read.TeamID, read.ID)
		if err != nil {
			return false, err
		}
		winner = best(all, read.Options.Metric)
	}
	return r.updateLocked(ctx, read, func(tx *db.Tx, b *Broadcast) (bool, error) {
		if b.Winner < 0 {
			b.Winner = winner
		}
		switch {
		case b.Winner >= 0:
			b.useWinner(b.Winner)
			return true, nil
		case b.Options.Metric == ByHand:
			r.s.p.Queue.Finish(ctx, tx, r.job) // SetWinner enqueues the job again
		default:
			r.s.p.Queue.Wait(ctx, tx, r.job, b.nextAt, "")
		}
		return false, nil
	})
}

// useWinner stores the winning variant and, if the test is over, starts sending it to the remaining audience.
func (b *Broadcast) useWinner(winner int) {
	b.Winner = winner
	if b.phase == choose {
		b.phase, b.position, b.nextAt = walkRest, "", b.StartedAt
	}
}

// best returns the variant with the highest open or click rate. If several variants share the highest rate, best
// returns the first of them.
func best(all []Tally, by Metric) (winner int) {
	rate := func(t Tally) float64 {
		n := t.Opened
		if by == ByClicks {
			n = t.Clicked
		}
		return float64(n) / float64(max(1, t.Entered))
	}
	for i := range all {
		if rate(all[i]) > rate(all[winner]) {
			winner = i
		}
	}
	return winner
}

// NoWinner means that no variant has won.
const NoWinner = -1

// SetWinner sets the winner of an A/B test to a variant that a user has chosen. The user's choice takes effect
// immediately.
func (s *Service) SetWinner(ctx context.Context, teamID, broadcastID string, winner int) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		b, err := lock(ctx, tx, teamID, broadcastID)
		if err != nil {
			return err
		}
		if b.Variants, err = getVariants(ctx, tx.Reader, teamID, broadcastID); err != nil {
			return err
		}
		if err := b.requireStatus("given a winner", Queued, Paused); err != nil {
			return err
		}
		if len(b.Variants) < 2 {
			return fault.Invalidf("", "The broadcast has no variants to choose from.")
		}
		if winner == NoWinner {
			return fault.MissingField("variant")
		}
		if winner < 0 || winner >= len(b.Variants) {
			return fault.Invalidf("variant", "The `variant` field must be 0 to %d.", len(b.Variants)-1)
		}
		if !b.Testing() && !b.StartedAt.IsZero() {
			return fault.Invalidf("", "The winner has been chosen already, or nobody waits for it.")
		}
		b.useWinner(winner)
		save(ctx, tx, &b)
		if b.Status == Paused {
			return nil
		}
		return s.wake(ctx, tx, &b)
	})
}
