package delivery

import (
	"time"

	"github.com/postrider/postrider/internal/platform/jobs"
)

const (
	// stallAfter is how long a window's conversations may go without any answer before they count as stalled. No
	// conversation begins while other conversations are stalled. Most content filters answer in less than 30 seconds.
	stallAfter = 30 * time.Second
	// slowEarns is the number of conversations that an answer after stallAfter adds to the limit. A prompt answer adds
	// one. A slow host gives few answers in the same time, so each of them counts for more.
	slowEarns = 3
)

// window limits one team's concurrent conversations with one destination or one address. The limit starts at one
// conversation. Each prompt answer raises the limit by one, so the limit doubles with each round of prompt answers and
// reaches twenty after five rounds. Each slow answer raises the limit by slowEarns, so the limit reaches twenty after
// three rounds of slow answers. A conversation that ends without an answer after a stall reduces the limit to one, and
// the limit does not grow during the stall. A stalling host therefore occupies only the connections that it already
// had, no matter how much mail waits for it.
type window struct {
	limit        int           // limit on concurrent conversations; 0 at first, see allowed
	talking      int           // conversations in progress
	lastProgress time.Time     // time of the last answer, or of the start of the current conversations
	lastPrompt   time.Time     // time of the last answer, if it was prompt
	usual        time.Duration // how long the last slow answer took; halved by each prompt answer
	fullAt       time.Time     // when the limit was last found to be reached
	stuck        bool          // whether the last conversation stalled and then ended without an answer
}

// allowed returns the maximum number of concurrent conversations, at least 1.
func (f *window) allowed() int { return max(f.limit, 1) }

// stalls reports whether the current conversations have waited too long for an answer. A host whose answers have taken
// longer than the parameter patience gets twice the time that it took last.
func (f *window) stalls(now time.Time, patience time.Duration) bool {
	return f.talking > 0 && now.Sub(f.lastProgress) >= max(patience, min(2*f.usual, talkMax))
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

// response says how a host answered in a conversation.
type response uint8

const (
	untried    response = iota // the host was not contacted or had too little time to answer
	unanswered                 // the host did not answer
	replied                    // the host accepted, refused or deferred the message
)

// end updates the limit after a conversation has ended. The parameter full is the highest value that the limit may
// reach.
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
		f.limit, f.lastPrompt, f.usual = 1, time.Time{}, 0
	case quick:
		f.limit, f.lastPrompt, f.lastProgress, f.usual = min(f.allowed()+1, full), now, now, f.usual/2
	default:
		f.limit, f.lastPrompt, f.lastProgress, f.usual = min(f.allowed()+slowEarns, full), time.Time{}, now, took
	}
	f.stuck = what == unanswered
}
