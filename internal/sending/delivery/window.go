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

// window limits the conversations of one team with one destination, or with one address. It starts with one at a time.
// Each prompt answer allows one more, so that twenty take five round trips. A conversation that hangs reduces the limit
// to one, and nothing is added while it hangs. So hosts that stall hold only as many connections as they have earned,
// however much mail there is for them.
type window struct {
	limit        int       // conversations that are allowed at once; 0 until one has ended, see places
	talking      int       // conversations
	lastProgress time.Time // the last answer, or when the first of the current conversations began
	lastPrompt   time.Time // the last prompt answer
	stuck        bool      // the last conversation took long
}

// places returns how many conversations are allowed at once.
func (f *window) allowed() int { return max(f.limit, 1) }

// stalls reports whether the current conversations have waited too long for an answer.
func (f *window) stalls(now time.Time, patience time.Duration) bool {
	return f.talking > 0 && now.Sub(f.lastProgress) >= patience
}

func (f *window) doubt(now time.Time, patience time.Duration) jobs.Doubt {
	switch {
	case f.stuck, f.stalls(now, patience):
		return jobs.Stuck
	case now.Sub(f.lastPrompt) < reachableFor:
		return jobs.Sure
	}
	return jobs.Unknown
}

func (f *window) begin(now time.Time) {
	if f.talking == 0 {
		f.lastProgress = now
	}
	f.talking++
}

// response is the kind of answer that a conversation had.
type response uint8

const (
	untried    response = iota // the host was not asked, or not given the time that it may take
	unanswered                 // no answer that decides about a message
	replied                    // accepted, refused or deferred
)

// end records the end of a conversation. full is the limit of conversations at once.
func (f *window) end(what response, took, patience time.Duration, full int, now time.Time) {
	f.talking--
	quick := took < patience
	switch {
	case what == untried:
		return
	case what == unanswered && quick: // a broken connection is not a stall
		f.limit /= 2
		return
	case what == unanswered:
		f.limit, f.lastPrompt = 1, time.Time{}
	case quick:
		f.limit, f.lastPrompt, f.lastProgress = min(f.allowed()+1, full), now, now
	default:
		f.limit, f.lastProgress = min(f.allowed()+1, slowMax, full), now
	}
	f.stuck = !quick
}
