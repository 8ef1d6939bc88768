package webhooks

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// answer is the result of an attempt.
type answer struct {
	code       int    // HTTP status; 0 if there was no answer
	body       string // the stored part
	retryAfter string // the header field as it was received
	err        string // why there was no answer, or why its body was not read to the end; "" otherwise
	late       bool   // the answer was not complete in time
	at         time.Time
	took       time.Duration
}

// verdict is the consequence of an answer.
type verdict struct {
	state  State
	wait   time.Duration // until the next try, if attempting
	gone   bool          // the endpoint says that it never wants another request
	reason string        // why it failed, "" if it did not
}

// judge returns the consequence of the answer to try number tries of a message's schedule, 1 for the first.
//
// Any 2xx status is a success, even if reading the body fails: the status says that the receiver has the message. 410
// Gone ends the message and the endpoint. Everything else is tried again by the schedule. Retry-After can delay the
// next try, but not bring it forward, and at most by the longest wait of the schedule: a receiver may ask for a pause,
// but not for a message to be dropped.
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

// retryAfter parses the field, which has seconds or a date (RFC 9110 section 10.2.3).
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
