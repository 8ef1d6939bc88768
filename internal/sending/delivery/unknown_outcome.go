package delivery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	// unknownTries is the number of attempts with an unknown outcome after which the retry delay gets longer. The outcome
	// is unknown if the host has received the whole message but does not answer. A single unknown outcome may be a
	// coincidence. After two unknown outcomes, the host probably accepts the message each time, so every try delivers
	// another copy.
	unknownTries = 2
	// unknownWaitMin is the wait once unknownTries tries have ended with an unknown outcome. The wait doubles with each
	// additional unknown outcome. Four hours are enough for a restarted or overloaded host to recover, and the operators
	// of a broken host usually notice within a day. With the default schedule, a host receives at most 7 copies in three
	// days, instead of 13.
	unknownWaitMin = 4 * time.Hour
	unknownWaitMax = 24 * time.Hour
)

// unknownWait returns the minimum wait after the given number of tries with an unknown outcome.
func unknownWait(times int) time.Duration {
	if times < unknownTries {
		return 0
	}
	return min(unknownWaitMin<<min(times-unknownTries, 10), unknownWaitMax)
}

// holdUnknown returns the minimum wait after an outcome if a host may already have accepted the message. If the wait is
// not 0, holdUnknown adds a note to the recorded conversation.
func (s *Service) holdUnknown(ctx context.Context, t *try, out *outcome) time.Duration {
	if !slices.ContainsFunc(out.answers, func(a answer) bool { return a.unknown }) {
		return 0
	}
	before, err := emails.UnknownAttempts(ctx, s.p.DB.Reader, t.o.TeamID, t.o.ID, t.d.Domain, t.o.To...)
	if err != nil { // the outcome must be recorded, and a second copy is worse than a delay
		s.p.Log.Warn("cannot count the attempts with an unknown outcome; the email waits", "email", t.o.ID,
			"error", err)
		before = unknownTries
	}
	wait := unknownWait(before + 1)
	if wait > 0 {
		note := fmt.Sprintf("* %d tries have ended like this: the host read the whole message and did not say whether it "+
			"took it, so each may have delivered a copy. The next try, with the same Message-ID, waits for at least %d hours.\n",
			before+1, int(wait.Hours()))
		out.conversation = elideMiddle(out.conversation, conversationMax-len(note)) + note
	}
	return wait
}
