package web

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestFormats(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 12, 9, 14, 0, 0, time.UTC)
	for got, want := range map[string]string{
		took(38 * time.Millisecond): "38 ms", took(41 * time.Second): "41.0 s", took(344 * time.Second): "5 min 44 s",
		took(300 * time.Microsecond): "less than 1 ms", took(0): "0 ms",
		took(3*time.Hour + 90*time.Second): "3 h 1 min", took(51 * time.Hour): "2 days 3 h", took(-1): "–",
		agoText(14*time.Second, at): "14 s", agoText(9*time.Minute+59*time.Second, at): "9 min",
		agoText(3*time.Hour, at): "3 h", agoText(25*time.Hour, at): "12 Nov 09:14", agoText(-2*time.Hour, at): "in 2 h",
		num(4812): "4,812", num(-1234567): "-1,234,567", num(int64(7)): "7", size(812): "812 bytes", size(12100): "12.1 KB",
		size(int64(3400000)): "3.4 MB", plural(1, "filter is", "filters are"): "1 filter is",
		plural(2000, "email", "emails"): "2,000 emails", initials("Laura Meyer"): "LM", initials("laura@example.org"): "LE",
		initials(""): "", Percent(1, 3, .9): "33.333%", Percent(1, 100000, .9): "0.9%",
		Percent(0, 5, .9): "0", Percent(7, 5, .9): "100%", Label("delivery_delayed"): "Delayed",
		Label("a_new_state"): "A new state", Label(""): "",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// DNS providers add the registrable domain to the names of records.
func TestEntered(t *testing.T) {
	for name, want := range map[string]string{"_dmarc.mail.acme.co.uk": "_dmarc.mail", "acme.co.uk": "@",
		"mail.acme.example": "mail", "_smtp._tls.acme.example": "_smtp._tls"} {
		if got := entered(name); got != want {
			t.Errorf("%s is entered as %s", name, got)
		}
	}
}

func TestWith(t *testing.T) {
	t.Parallel()
	u, err := url.Parse("/app/emails?status=bounced&status=failed&after=1&q=a%20b")
	if err != nil {
		t.Fatal(err)
	}
	if got := With(u, "after", "", "status", "", "domain", "x y"); got != "/app/emails?domain=x+y&q=a+b" {
		t.Errorf("it is %s", got)
	}
	if got := With(u, "after", "", "status", "", "q", ""); got != "/app/emails" {
		t.Errorf("without parameters, it is %s", got)
	}
}

// Times in a sentence become time elements, which pages show in the visitor's zone; the text around them is escaped.
func TestTimed(t *testing.T) {
	got := string(timed("A <b> at 2026-11-30 10:39:14 UTC, not 2026-99-30 10:39:14 UTC, since 2026-11-30 10:39 UTC."))
	want := "A &lt;b&gt; at " + string(when(time.Date(2026, 11, 30, 10, 39, 14, 0, time.UTC))) +
		", not 2026-99-30 10:39:14 UTC, since " + string(when(time.Date(2026, 11, 30, 10, 39, 0, 0, time.UTC))) + "."
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := timed("550 \u202eabc\u200b"); got != "550 [U+202E]abc[U+200B]" {
		t.Errorf("hidden characters: %q", got)
	}
}

// In a sentence, a time that has passed is "ago", and one ahead is "in". From a day on, both are dates.
func TestRelative(t *testing.T) {
	now := time.Now()
	day := now.Add(-25 * time.Hour)
	for at, want := range map[time.Time]string{now.Add(-150 * time.Second): "2 min ago", day: day.UTC().Format(dayLayout),
		now.Add(150 * time.Minute): "in 2 h"} {
		if got := string(relative(at)); !strings.Contains(got, `data-t="relative"`) || !strings.Contains(got, ">"+want+"<") {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
