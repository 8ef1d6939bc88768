package webhooks

import (
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	schedule := []time.Duration{5 * time.Second, 5 * time.Minute, 10 * time.Hour}
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		a     answer
		tries int
		want  verdict
	}{
		{"200", answer{code: 200}, 1, verdict{state: Success}},
		{"204", answer{code: 204}, 1, verdict{state: Success}},
		{"299 at the last try", answer{code: 299}, 4, verdict{state: Success}},
		{"200 whose body stalls", answer{code: 200, err: "timeout"}, 1, verdict{state: Success}},
		{"500", answer{code: 500}, 1, verdict{Attempting, 5 * time.Second, false,
			"the endpoint answered 500 Internal Server Error"}},
		{"a second failure", answer{code: 404}, 2, verdict{Attempting, 5 * time.Minute, false,
			"the endpoint answered 404 Not Found"}},
		{"the last failure", answer{code: 500}, 4,
			verdict{Failed, 0, false, "the endpoint answered 500 Internal Server Error"}},
		{"no answer", answer{err: "connection refused"}, 1, verdict{Attempting, 5 * time.Second, false,
			"connection refused"}},
		{"nothing at all", answer{}, 1, verdict{Attempting, 5 * time.Second, false, "there was no answer"}},
		{"a redirect", answer{code: 302}, 1, verdict{Attempting, 5 * time.Second, false,
			"the endpoint answered 302; redirects are not followed"}},
		{"410", answer{code: 410, retryAfter: "10"}, 1, verdict{Failed, 0, true, "the endpoint answered 410 Gone"}},
		{"Retry-After in seconds", answer{code: 429, retryAfter: "60"}, 1, verdict{Attempting, time.Minute, false,
			"the endpoint answered 429 Too Many Requests"}},
		{"Retry-After as a date", answer{code: 503, retryAfter: "Thu, 01 Oct 2026 12:01:00 GMT", at: now.Add(-time.Second),
			took: time.Second}, 1,
			verdict{Attempting, time.Minute, false, "the endpoint answered 503 Service Unavailable"}},
		{"Retry-After sooner than the schedule", answer{code: 503, retryAfter: "1"}, 1, verdict{Attempting, 5 * time.Second,
			false, "the endpoint answered 503 Service Unavailable"}},
		{"Retry-After for a year", answer{code: 503, retryAfter: "31536000"}, 1, verdict{Attempting, 10 * time.Hour, false,
			"the endpoint answered 503 Service Unavailable"}},
		{"Retry-After in the past", answer{code: 503, retryAfter: "Thu, 01 Oct 2020 12:01:00 GMT", at: now}, 1,
			verdict{Attempting, 5 * time.Second, false, "the endpoint answered 503 Service Unavailable"}},
		{"Retry-After that is none", answer{code: 503, retryAfter: "-5"}, 1, verdict{Attempting, 5 * time.Second, false,
			"the endpoint answered 503 Service Unavailable"}},
	} {
		if got := judge(c.a, schedule, c.tries); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Every Retry-After value results in a delay within the schedule's bounds.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "60", "99999999999999999999", "Thu, 01 Oct 2026 12:01:00 GMT",
		"Thursday, 01-Oct-26 12:01:00 GMT", "soon"} {
		f.Add(seed, 503)
	}
	schedule := []time.Duration{5 * time.Second, time.Hour}
	f.Fuzz(func(t *testing.T, text string, code int) {
		v := judge(answer{code: code, retryAfter: text, at: time.Unix(1_790_000_000, 0)}, schedule, 1)
		if v.state == Attempting && (v.wait < schedule[0] || v.wait > schedule[1]) {
			t.Errorf("waits %v", v.wait)
		}
	})
}
