package webhooks

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// answer is what an attempt came back with.
type answer struct {
	code       int    // 0 when there was no answer
	body       string // bounded
	retryAfter string // the header, as it came
	err        string // why there was no answer, or why it was not read to its end; "" when it was
	late       bool   // there was no whole answer in time
	at         time.Time
	took       time.Duration
}

// verdict is what follows from an answer.
type verdict struct {
	state  State
	wait   time.Duration // until the next try, while attempting
	gone   bool          // the endpoint says that it never wants to be called again
	reason string        // why it failed, "" when it did not
}

// judge decides what follows from the answer to a message's try number tries of its schedule, 1 for the first.
//
// Any 2xx is success, however its body ends: the head says that the receiver has it. 410 Gone is the end of the
// message and the endpoint. All else is tried again by the schedule. Retry-After can make that later, never sooner,
// and at most by the longest wait of the schedule: a receiver may ask for a rest, not for a message to be forgotten.
func judge(a answer, schedule []time.Duration, tries int) verdict {
	switch {
	case a.code/100 == 2:
		return verdict{state: Success}
	case a.code == http.StatusGone:
		return verdict{state: Failed, gone: true, reason: "the endpoint answered 410 Gone"}
	}
	v := verdict{state: Failed, reason: a.err}
	switch {
	case a.code == 0 && a.err == "":
		v.reason = "there was no answer"
	case a.code/100 == 3:
		v.reason = fmt.Sprintf("the endpoint answered %d; redirects are not followed", a.code)
	case a.code != 0:
		v.reason = fmt.Sprintf("the endpoint answered %d %s", a.code, http.StatusText(a.code))
	}
	if tries > len(schedule) {
		return v
	}
	v.state, v.wait = Attempting, schedule[tries-1]
	longest := time.Duration(0)
	for _, d := range schedule {
		longest = max(longest, d)
	}
	if asked, ok := retryAfter(a.retryAfter, a.at.Add(a.took)); ok {
		v.wait = max(v.wait, min(asked, longest))
	}
	return v
}

// retryAfter reads the header, which has seconds or a date (RFC 9110 section 10.2.3).
func retryAfter(text string, now time.Time) (time.Duration, bool) {
	if text == "" {
		return 0, false
	}
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now)), true
	}
	return 0, false
}
