package web

import (
	"fmt"
	"html/template"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/registrable"
	"github.com/postrider/postrider/internal/lib/visible"
)

// functions are the functions that all templates can use.
var functions = template.FuncMap{
	"date": date, "shown": visible.Show, "confirmation": Confirmation, "asset": assetPath, "icon": icon,
	"state": stateOf, "when": when, "ago": ago, "relative": relative, "clock": clock, "num": num, "size": size,
	"took": took, "initials": initials, "dict": dict, "plural": plural, "middle": middle,
	"daytime": daytime, "timed": timed, "entered": entered, "registrable": registrable.Domain,
	"shortcuts": func() []shortcut { return allShortcuts },
}

// entered returns the name of a DNS record as most DNS providers want it: without the registrable domain, which they
// add.
func entered(name string) string {
	zone := registrable.Domain(name)
	if name == zone {
		return "@"
	}
	return strings.TrimSuffix(name, "."+zone)
}

// icon returns an icon, which screen readers skip.
func icon(name string) template.HTML {
	return template.HTML(`<svg class="i" aria-hidden="true"><use href="` + assetPath("icons.svg") + "#" +
		template.HTMLEscapeString(name) + `"/></svg>`)
}

// State is how a state is shown: an outline that says its kind, and a word.
type State struct {
	Glyph string // symbol in icons.svg, without its prefix
	Tone  string // ok, warn, bad, note, way (under way) or "" (needs nothing)
	Label string
	API   string // the state's name in the API
}

// states holds all states by their names in the API.
var states = map[string]State{
	"draft":            {"draft", "", "Draft", ""},
	"queued":           {"queued", "", "Queued", ""},
	"scheduled":        {"scheduled", "", "Scheduled", ""},
	"sending":          {"sending", "way", "Sending", ""},
	"sent":             {"sent", "way", "Sent", ""},
	"delivered":        {"done", "ok", "Delivered", ""},
	"opened":           {"opened", "way", "Opened", ""},
	"clicked":          {"clicked", "way", "Clicked", ""},
	"delivery_delayed": {"delayed", "warn", "Delayed", ""},
	"bounced":          {"bounced", "bad", "Bounced", ""},
	"failed":           {"failed", "bad", "Failed", ""},
	"complained":       {"complained", "note", "Complained", ""},
	"suppressed":       {"suppressed", "", "Suppressed", ""},
	"canceled":         {"canceled", "", "Canceled", ""},
	"captured":         {"done", "ok", "Captured", ""}, // by the outbox, in development
	"received":         {"done", "ok", "Received", ""},
	"unsubscribed":     {"suppressed", "", "Unsubscribed", ""},

	"report_counted":     {"done", "ok", "Counted", ""},
	"report_apart":       {"delayed", "", "Added up apart", ""},
	"report_overlapping": {"delayed", "", "Overlaps, not counted", ""},
	"report_unreadable":  {"failed", "bad", "Unreadable", ""},
	"report_discarded":   {"canceled", "", "Discarded", ""},

	"verified":           {"done", "ok", "Verified", ""},
	"partially_verified": {"warning", "warn", "Partly verified", ""},
	"partially_failed":   {"warning", "warn", "Partly failed", ""},
	"pending":            {"queued", "", "Looking for records", ""},
	"not_started":        {"queued", "", "Not started", ""},
	"temporary_failure":  {"warning", "warn", "No answer", ""},
	"active":             {"done", "ok", "Active", ""},
	"enabled":            {"done", "ok", "Enabled", ""},
	"disabled":           {"canceled", "", "Disabled", ""},
	"success":            {"done", "ok", "Delivered", ""},
	"paused":             {"paused", "warn", "Paused", ""},
	"warning":            {"warning", "warn", "Warning", ""},
	"passed":             {"done", "ok", "Passed", ""},
	"claimed":            {"delayed", "warn", "Claimed", ""},
	"blocked":            {"paused", "warn", "Waiting for the owner", ""},
	"superseded":         {"canceled", "", "Replaced", ""},
	"looking":            {"sending", "way", "Looking", ""},
	"no_answer":          {"warning", "warn", "No answer", ""},
	"wrong_value":        {"bounced", "bad", "Wrong value", ""},
	"record_failed":      {"failed", "bad", "Not found", ""},
	"missing":            {"warning", "warn", "Missing", ""},
	"not_found":          {"queued", "", "Not found", ""},
	"hidden":             {"queued", "", "Not visible yet", ""},
	"key_next":           {"queued", "", "Waits for its record", ""},
	"key_found":          {"sending", "way", "Signs soon", ""},
	"key_signing":        {"done", "ok", "In use", ""},
	"key_retired":        {"paused", "", "Retired", ""},
	"key_revoked":        {"canceled", "", "Revoked", ""},
	"unknown":            {"unknown", "", "Not recorded", ""},
	"hint":               {"unknown", "", "Hint", ""},
	"running":            {"sending", "way", "Running", ""},
	"complete":           {"done", "ok", "Complete", ""},
	"stopped":            {"failed", "bad", "Stopped", ""},
	"up":                 {"done", "ok", "Up", ""},
	"open":               {"queued", "", "Open", ""},
	"approved":           {"done", "ok", "Approved", ""},
	"rejected":           {"canceled", "", "Rejected", ""},
	"expired":            {"canceled", "", "Expired", ""},
	"completed":          {"done", "ok", "Completed", ""},
	"in_progress":        {"sending", "way", "In progress", ""},
	"subscribed":         {"done", "ok", "Subscribed", ""},
	"invited":            {"sent", "way", "Invited", ""},
	"attempting":         {"sending", "way", "Attempting", ""},
	"delivering":         {"sending", "way", "Delivering", ""},
	"email_suppressed":   {"suppressed", "", "Suppressed", ""},
	"waiting":            {"queued", "", "Waiting", ""},
	"retrying":           {"delayed", "warn", "Retrying", ""},
	"exhausted":          {"failed", "bad", "Failed", ""},
	"failing":            {"warning", "warn", "Failing", ""},
	"refused":            {"canceled", "", "Refused by the owner", ""},
	"full":               {"paused", "warn", "Full", ""},
	"bounce":             {"bounced", "bad", "Bounce", ""},
	"complaint":          {"complained", "note", "Complaint", ""},
	"manual":             {"suppressed", "", "Added by hand", ""},

	"waiting_for_confirmation": {"queued", "", "Waiting for confirmation", ""},
}

// stateOf returns how a state is shown. An unknown state is shown by its name.
func stateOf(name any) State {
	text := fmt.Sprint(name)
	s, ok := states[text]
	if !ok {
		label := strings.ReplaceAll(text, "_", " ")
		if label != "" {
			label = strings.ToUpper(label[:1]) + label[1:]
		}
		s = State{Glyph: "unknown", Label: label}
	}
	s.API = text
	return s
}

// date formats a time in UTC, because the server does not know the visitor's time zone.
func date(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04 UTC") }

// when returns a time element with the date and time in UTC. A script replaces the text by the time in the visitor's
// zone.
func when(t time.Time) template.HTML {
	return timeElement(t, "at", t.UTC().Format(atLayout))
}

// ago returns a time element with the time that has passed, such as "14 s", "9 min" and "3 h", and after a day the
// date. It is for columns of tables. A script keeps the text up to date.
func ago(t time.Time) template.HTML { return timeElement(t, "ago", agoText(time.Since(t), t)) }

// relative returns a time element for a sentence: "14 s ago", "in 3 h", and from a day on the date. A script keeps the
// text up to date.
func relative(t time.Time) template.HTML {
	passed := time.Since(t)
	text := agoText(passed, t)
	if passed >= 0 && passed < 24*time.Hour {
		text += " ago"
	}
	return timeElement(t, "relative", text)
}

// clock returns a time element with the time of day, and after a day the date.
func clock(t time.Time) template.HTML {
	if time.Since(t) > 24*time.Hour {
		return ago(t)
	}
	return timeElement(t, "clock", t.UTC().Format(clockLayout))
}

// writtenTime matches the times in sentences that the services write.
var writtenTime = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC`)

// timed returns a sentence with a time element in place of each time in it, so that the times of a page have one zone.
// Hidden characters, such as those of a host's reply, are shown by their code points.
func timed(sentence string) template.HTML {
	sentence = visible.Show(sentence)
	var b strings.Builder
	end := 0
	for _, m := range writtenTime.FindAllStringSubmatchIndex(sentence, -1) {
		layout := "2006-01-02 15:04:05 UTC"
		if m[2] < 0 {
			layout = "2006-01-02 15:04 UTC"
		}
		t, err := time.Parse(layout, sentence[m[0]:m[1]])
		if err != nil {
			continue
		}
		b.WriteString(template.HTMLEscapeString(sentence[end:m[0]]))
		b.WriteString(string(when(t)))
		end = m[1]
	}
	b.WriteString(template.HTMLEscapeString(sentence[end:]))
	return template.HTML(b.String())
}

// daytime returns a time element with the time of day. The date must be visible nearby.
func daytime(t time.Time) template.HTML { return timeElement(t, "clock", t.UTC().Format(clockLayout)) }

func timeElement(t time.Time, kind, text string) template.HTML {
	if t.IsZero() {
		return "–"
	}
	return template.HTML(timeIn(t, time.UTC, kind, text))
}

// The layouts of times in time elements.
const (
	timeAttribute = "2006-01-02T15:04:05.000Z"
	atLayout      = "2 Jan 2006, 15:04:05"
	clockLayout   = "15:04:05"
	dayLayout     = "2 Jan 15:04"
)

// timeIn returns a time element with the exact time in a zone as its title.
func timeIn(t time.Time, zone *time.Location, kind, text string) string {
	return `<time datetime="` + t.UTC().Format(timeAttribute) + `" data-t="` + kind + `" title="` +
		t.In(zone).Format("2 January 2006, 15:04:05 ") + zone.String() + `">` + template.HTMLEscapeString(text) + `</time>`
}

func agoText(d time.Duration, t time.Time) string {
	ahead := ""
	if d < 0 {
		d, ahead = -d, "in "
	}
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%s%d s", ahead, int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%s%d min", ahead, int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%s%d h", ahead, int(d.Hours()))
	}
	return t.UTC().Format(dayLayout)
}

// took formats a duration, such as "38 ms", "41.0 s" and "5 min 44 s".
func took(d time.Duration) string {
	switch {
	case d < 0:
		return "–"
	case d > 0 && d < time.Millisecond:
		return "less than 1 ms"
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days %d h", int(d.Hours())/24, int(d.Hours())%24)
}

// num formats a whole number with commas between thousands.
func num(n any) string {
	text := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// Size returns a number of bytes in words, such as "2.1 MB".
func Size(bytes int64) string { return size(bytes) }

// size formats a number of bytes, such as "812 bytes", "12.1 KB" and "3.4 MB".
func size(n any) string {
	bytes, err := strconv.ParseFloat(fmt.Sprint(n), 64)
	switch {
	case err != nil:
		return ""
	case bytes < 1000:
		return fmt.Sprintf("%d bytes", int(bytes))
	case bytes < 1e6:
		return fmt.Sprintf("%.1f KB", bytes/1e3)
	}
	return fmt.Sprintf("%.1f MB", bytes/1e6)
}

// plural returns the number with the noun, in the plural unless the number is 1.
func plural(n any, one, many string) string {
	if fmt.Sprint(n) == "1" {
		return "1 " + one
	}
	return num(n) + " " + many
}

// initials returns up to two letters that stand for a name or an address.
func initials(name string) string {
	words := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(" .@-_+", r) })
	out := ""
	for _, w := range words[:min(len(words), 2)] {
		for _, r := range w {
			out += strings.ToUpper(string(r))
			break
		}
	}
	return out
}

// middle shortens an id to its first and last characters.
func middle(id string) string {
	if len(id) < 20 {
		return id
	}
	return id[:8] + "…" + id[len(id)-6:]
}

// dict returns a map of the arguments, which are names and values in turn, for a template with several arguments.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict has %d arguments: want names and values in turn", len(pairs))
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: argument %d is no name", i+1)
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// Percent formats a share for the width of an SVG element, between 0 and 100 %. A share that is not zero takes at least
// the given percentage.
func Percent(part, whole, least float64) string {
	if whole <= 0 || part <= 0 {
		return "0"
	}
	return strconv.FormatFloat(math.Round(1000*min(max(100*part/whole, least), 100))/1000, 'f', -1, 64) + "%"
}

// Label returns the word for a state.
func Label(state string) string { return stateOf(state).Label }

// Number formats a whole number with commas between thousands.
func Number(n int) string { return num(n) }
