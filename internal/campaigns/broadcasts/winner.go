package broadcasts

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
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
		return 0, true, true
	}
	if len(b.Variants) == 0 {
		return 0, false, true
	}
	if b.phase == walkRest {
		return b.Winner, false, true
	}
	tested := percent(sum[8:16]) < b.Options.TestShare
	return int(binary.BigEndian.Uint64(sum[16:24]) % uint64(len(b.Variants))), false, tested
}

// choose chooses the winner of an A/B test when the waiting time is over, and then starts the next phase. If most of
// the test's emails still wait for delivery, the waiting time starts again: the few results do not say which variant is
// better. An email stops waiting when it has been tried once, so this ends.
func (r *run) choose(ctx context.Context, read *Broadcast) (bool, error) {
	winner, significance, again := read.Winner, unknown, false
	if winner < 0 && read.Options.Metric != ByHand && !read.nextAt.After(r.s.p.DB.Now()) {
		all, _, _, err := tallies(ctx, r.s.p.DB.Reader, read.TeamID, read.ID)
		if err != nil {
			return false, err
		}
		var total Tally
		for _, t := range all {
			total.add(t)
		}
		if again = 2*total.Waiting > total.Entered; !again {
			winner, significance = best(all, read.Options.Metric)
		}
	}
	return r.updateLocked(ctx, read, func(tx *db.Tx, b *Broadcast) (bool, error) {
		if b.Winner < 0 {
			b.Winner, b.significance = winner, significance
		}
		switch {
		case b.Winner >= 0:
			b.useWinner(b.Winner)
			return true, nil
		case b.Options.Metric == ByHand:
			r.s.p.Queue.Finish(ctx, tx, r.job) // SetWinner enqueues the job again
			return false, nil
		case again:
			b.nextAt = tx.Now().Add(time.Duration(b.Options.Wait) * time.Minute)
		}
		r.s.p.Queue.Wait(ctx, tx, r.job, b.nextAt, "")
		return false, nil
	})
}

// keepClock stops the clock of an A/B test while the broadcast is paused: when the broadcast continues, the winner is
// chosen later by the duration of the pause.
func (b *Broadcast) keepClock(now time.Time) {
	switch {
	case b.Status == Paused && b.pausedAt.IsZero():
		b.pausedAt = now
	case b.Status != Paused && !b.pausedAt.IsZero():
		if b.phase == choose {
			b.nextAt = b.nextAt.Add(now.Sub(b.pausedAt))
		}
		b.pausedAt = time.Time{}
	}
}

// useWinner stores the winning variant and, if the test is over, starts sending it to the remaining audience.
func (b *Broadcast) useWinner(winner int) {
	b.Winner = winner
	if b.phase == choose {
		b.phase, b.position, b.nextAt = walkRest, "", b.StartedAt
	}
}

// significance says whether the winner of an A/B test differed significantly from the other variants.
type significance int

const (
	unknown        significance = -1 // no winner was chosen, or a person chose it
	notSignificant significance = 0
	significant    significance = 1
)

// measured returns the number of people who count for a metric.
func (t *Tally) measured(by Metric) int64 {
	if by == ByClicks {
		return t.Clicked
	}
	return t.Opened
}

// best returns the variant with the highest open or click rate, and whether its rate is significantly higher than the
// rate of each other variant. If several variants share the highest rate, best returns the first of them.
func best(all []Tally, by Metric) (winner int, s significance) {
	rate := func(t *Tally) float64 { return float64(t.measured(by)) / float64(max(1, t.Entered)) }
	for i := range all {
		if rate(&all[i]) > rate(&all[winner]) {
			winner = i
		}
	}
	for i := range all {
		w, t := &all[winner], &all[i]
		if i != winner && !differ(w.measured(by), w.Entered, t.measured(by), t.Entered) {
			return winner, notSignificant
		}
	}
	return winner, significant
}

// differ reports whether a of n differs significantly from b of m, according to a two-sided z test for two proportions
// at a level of 95 %.
func differ(a, n, b, m int64) bool {
	if n == 0 || m == 0 {
		return false
	}
	pooled := float64(a+b) / float64(n+m)
	deviation := math.Sqrt(pooled * (1 - pooled) * (1/float64(n) + 1/float64(m)))
	return math.Abs(float64(a)/float64(n)-float64(b)/float64(m)) > 1.96*deviation && deviation > 0
}

// WinnerSignificant reports whether the winner of the A/B test differed significantly from the other variants. The
// result ok is false if no winner was chosen by the metric.
func (b *Broadcast) WinnerSignificant() (yes, ok bool) {
	return b.significance == significant, b.significance != unknown
}

// checkMetric returns an error if the metric that chooses the winner of an A/B test cannot be measured in the emails of
// each variant.
func (b *Broadcast) checkMetric(all []*emails.Mailing) error {
	if !b.waitsForWinner() || b.Options.Metric == ByHand {
		return nil
	}
	for i, m := range all {
		if why := m.WhyUntracked(b.Options.Metric == ByClicks); why != "" {
			return fault.Invalidf("ab_test.metric", "The `ab_test.metric` field is `%s`, which cannot be measured for the "+
				"variant %d (from 0): %s. Change this, or choose the winner yourself with the metric `manual`.",
				b.Options.Metric, i, why)
		}
	}
	return nil
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
		b.significance = unknown
		b.useWinner(winner)
		save(ctx, tx, &b)
		if b.Status == Paused {
			return nil
		}
		return s.wake(ctx, tx, &b)
	})
}
