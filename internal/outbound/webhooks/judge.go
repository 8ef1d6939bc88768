package webhooks

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// answer is the result of a delivery attempt.
type answer struct {
	code       int    // HTTP status; 0 if there was no response
	body       string // part of the response body that is stored
	retryAfter string // Retry-After field as received
	err        string // why there was no response, or why its body is incomplete; "" otherwise
	late       bool   // whether the response was not complete in time
	at         time.Time
	took       time.Duration
}

// verdict describes what an attempt's result means for the message and the endpoint.
type verdict struct {
	state  State
	wait   time.Duration // time until the next attempt if the state is Attempting
	gone   bool          // whether the endpoint responded that it accepts no more requests
	reason string        // why the attempt failed; "" for a success
}

// judge returns the verdict on an attempt's result. The parameter tries is the attempt's number in the message's
// schedule, starting at 1.
//
// Any 2xx status is a success, even if reading the body fails, because the status shows that the receiver has the
// message. Status 410 Gone fails the message and disables the endpoint. Messages with any other response are retried
// according to the schedule. A Retry-After field can delay the next attempt, but cannot make it earlier. The delay is
// at most the longest delay in the schedule, so that a receiver can request a pause but cannot cause messages to be
// dropped.
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

// retryAfter parses the Retry-After field, which contains seconds or a date (RFC 9110 section 10.2.3).
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
