package schedule

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// offsets maps time zone abbreviations to offsets from UTC, in minutes. Ambiguous abbreviations (IST, AST) are omitted.
var offsets = map[string]int{
	"utc": 0, "gmt": 0, "z": 0, "wet": 0, "west": 60, "bst": 60, "cet": 60, "cest": 120, "eet": 120, "eest": 180,
	"msk": 180,
	"est": -300, "edt": -240, "cst": -360, "cdt": -300, "mst": -420, "mdt": -360, "pst": -480, "pdt": -420,
	"akst": -540, "akdt": -480, "hst": -600, "jst": 540, "kst": 540, "acst": 570, "aest": 600, "aedt": 660, "nzst": 720,
	"nzdt": 780,
}

// seasonal maps abbreviations for zones with daylight saving time to zone names.
var seasonal = map[string]string{
	"et": "America/New_York", "ct": "America/Chicago", "mt": "America/Denver", "pt": "America/Los_Angeles",
}

var (
	offsetText = regexp.MustCompile(`^(?:utc|gmt)?([+-])(\d{1,2})(?::?(\d\d))?$`)
	zoneName   = regexp.MustCompile(`^[A-Za-z]+(/[A-Za-z0-9_+-]+){1,2}$`)
	zoneWord   = regexp.MustCompile(`[A-Za-z]+`)
)

// zone parses a time zone: an abbreviation, an offset, or a name from the time zone database.
func (p *phrase) zone() (*time.Location, bool) {
	if p.end() {
		return nil, false
	}
	zone, ok := offsetZone(p.low[p.next])
	if !ok {
		zone, ok = namedZone(p.raw[p.next])
	}
	if ok {
		p.next++
	}
	return zone, ok
}

// offsetZone parses offsets such as Z, +02, -0530 and UTC+2, and the abbreviations in the offsets map, all in lower
// case.
func offsetZone(s string) (*time.Location, bool) {
	if minutes, ok := offsets[s]; ok {
		return time.FixedZone("", minutes*60), true
	}
	m := offsetText.FindStringSubmatch(s)
	if m == nil {
		return nil, false
	}
	hours, minutes := number(m[2]), number(m[3])
	if hours > 23 || minutes > 59 { // RFC 3339 section 5.6 limits hours and minutes.
		return nil, false
	}
	seconds := hours*3600 + minutes*60
	if m[1] == "-" {
		seconds = -seconds
	}
	return time.FixedZone("", seconds), true
}

// namedZone looks up a zone name as the user wrote it, and then with each word capitalized.
func namedZone(name string) (*time.Location, bool) {
	if place, ok := seasonal[strings.ToLower(name)]; ok {
		name = place
	}
	// On some systems, right/ and posix/ contain copies of all zones; those in right/ include leap seconds.
	first, _, _ := strings.Cut(strings.ToLower(name), "/")
	if len(name) > 50 || !zoneName.MatchString(name) || first == "right" || first == "posix" {
		return nil, false
	}
	if zone, err := time.LoadLocation(name); err == nil {
		return zone, true
	}
	capital := zoneWord.ReplaceAllStringFunc(strings.ToLower(name), func(w string) string {
		return strings.ToUpper(w[:1]) +
			w[1:]
	})
	zone, err := time.LoadLocation(capital)
	return zone, err == nil
}

var errZone = errors.New(`use a name such as Europe/Berlin, or UTC`)

// Zone parses a time zone. It accepts UTC, a name from the time zone database such as Europe/Berlin, an offset such as
// +02:00, or an abbreviation such as ET. Zone's error text is a sentence that can be shown to the user.
func Zone(s string) (*time.Location, error) {
	if len(s) > maxText {
		return nil, fmt.Errorf("a time zone of %d characters is not known: %w", len(s), errZone)
	}
	p := newPhrase(s)
	zone, ok := p.zone()
	if !ok || !p.end() {
		return nil, fmt.Errorf("%q is not known as a time zone: %w", s, errZone)
	}
	return zone, nil
}
