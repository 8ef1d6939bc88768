package delivery

import (
	"time"

	"github.com/postrider/postrider/internal/platform/jobs"
)

const (
	// stallAfter is the time without an answer to any message after which no more messages are sent the same way while
	// some are still waiting. It is longer than most content filters take.
	stallAfter = 30 * time.Second
	// slowMax is the limit of conversations at once where answers arrive, but take longer than stallAfter.
	slowMax = 4
)

// flow limits the conversations of one team with one destination, or with one address. It starts with one at a time.
// Each prompt answer allows one more, so that twenty take five round trips. A conversation that hangs reduces the limit
// to one, and nothing is added while it hangs. So hosts that stall hold only as many connections as they have earned,
// however much mail there is for them.
type flow struct {
	window   int       // conversations that are allowed at once; 0 until one has ended, see places
	talking  int       // conversations
	since    time.Time // the last answer, or when the first of the current conversations began
	answered time.Time // the last prompt answer
	stuck    bool      // the last conversation took long
}

// places returns how many conversations are allowed at once.
func (f *flow) places() int { return max(f.window, 1) }

// stalls reports whether the current conversations have waited too long for an answer.
func (f *flow) stalls(now time.Time, patience time.Duration) bool {
	return f.talking > 0 && now.Sub(f.since) >= patience
}

func (f *flow) doubt(now time.Time, patience time.Duration) jobs.Doubt {
	switch {
	case f.stuck, f.stalls(now, patience):
		return jobs.Stuck
	case now.Sub(f.answered) < goodFor:
		return jobs.Sure
	}
	return jobs.Unknown
}

func (f *flow) begin(now time.Time) {
	if f.talking == 0 {
		f.since = now
	}
	f.talking++
}

// hearing is the kind of answer that a conversation had.
type hearing uint8

const (
	untried    hearing = iota // the host was not asked, or not given the time that it may take
	unanswered                // no answer that decides about a message
	heard                     // accepted, refused or deferred
)

// end records the end of a conversation. full is the limit of conversations at once.
func (f *flow) end(what hearing, took, patience time.Duration, full int, now time.Time) {
	f.talking--
	quick := took < patience
	switch {
	case what == untried:
		return
	case what == unanswered && quick: // a broken connection is not a stall
		f.window /= 2
		return
	case what == unanswered:
		f.window, f.answered = 1, time.Time{}
	case quick:
		f.window, f.answered, f.since = min(f.places()+1, full), now, now
	default:
		f.window, f.since = min(f.places()+1, slowMax, full), now
	}
	f.stuck = !quick
}
