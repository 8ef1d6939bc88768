package delivery

import (
	"time"

	"github.com/postrider/postrider/internal/jobs"
)

const (
	// stallAfter is how long no message may be answered before nothing more is sent the same way while others hang there.
	// It is longer than most content filters take.
	stallAfter = 30 * time.Second
	// slowMax is how many conversations there may be at a time where answers come, and take longer than that.
	slowMax = 4
)

// flow is how the mail of one team gets on with one destination, or with one address. There is one conversation at a
// time at first; each prompt answer allows another, so that twenty take five round trips. What hangs takes all but one
// away, and while it hangs nothing is added: so hosts that stall hold as many connections as they have earned, however
// much mail there is for them.
type flow struct {
	window   int       // conversations that there may be at a time, where more than one has been earned
	talking  int       // conversations
	since    time.Time // the last answer, or when the first of those that talk began
	answered time.Time // the last prompt answer
	stuck    bool      // the last conversation took long
}

// places is how many conversations there may be at a time.
func (f *flow) places() int { return max(f.window, 1) }

// stalls reports whether those that talk wait in vain.
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

// hearing is what a host said in a conversation.
type hearing uint8

const (
	untried    hearing = iota // it was not asked, or not for as long as it may take
	unanswered                // nothing that decides about a message
	heard                     // yes, no, or later
)

// end takes in a conversation. full is how many there may be at most.
func (f *flow) end(what hearing, took, patience time.Duration, full int, now time.Time) {
	f.talking--
	quick := took < patience
	switch {
	case what == untried:
		return
	case what == unanswered && quick: // a connection that breaks is no stall
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
