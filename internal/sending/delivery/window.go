package delivery

import (
	"time"

	"github.com/postrider/postrider/internal/platform/jobs"
)

const (
	// stallAfter is how long conversations may be without any answer before they count as stalled. While conversations
	// are stalled, no further one begins. The time is longer than most content filters need.
	stallAfter = 30 * time.Second
	// slowMax limits the concurrent conversations with a host whose answers take longer than stallAfter.
	slowMax = 4
)

// window limits the concurrent conversations of one team with one destination, or with one address. The limit starts
// with one conversation. Each prompt answer allows one more conversation, so twenty take five round trips. A
// conversation that hangs reduces the limit to one, and the limit does not grow while it hangs. A stalling host
// therefore holds only the connections that it was allowed before, however much mail waits for it.
type window struct {
	limit        int       // limit of concurrent conversations; 0 until one has ended, see allowed
	talking      int       // conversations in progress
	lastProgress time.Time // time of the last answer, or when the first current conversation began
	lastPrompt   time.Time // time of the last prompt answer
	stuck        bool      // the last conversation took longer than stallAfter
}

// allowed returns the number of concurrent conversations that are allowed.
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
	untried    response = iota // the host was not contacted, or not given enough time
	unanswered                 // the host did not answer to the message
	replied                    // the host accepted, refused or deferred the message
)

// end records the end of a conversation. full is the largest possible limit.
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
