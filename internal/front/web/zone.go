package web

import (
	"net/http"
	"regexp"
	"time"
)

// zoneCookie holds the IANA name of the browser's time zone. The script of the pages sets the cookie (static/app.js),
// so its name has no prefix and scripts can read it. It is no secret.
const zoneCookie = "postrider-zone"

// zoneNameMax is the maximum length of the name of a time zone in bytes. The longest IANA name has 32.
const zoneNameMax = 64

// Zone returns the time zone of the browser that sent a request, or UTC if the browser has not named a known one.
func Zone(r *http.Request) *time.Location {
	if c, err := r.Cookie(zoneCookie); err == nil {
		if zone, ok := ParseZone(c.Value); ok {
			return zone
		}
	}
	return time.UTC
}

// ParseZone returns the time zone with an IANA name, such as Europe/Berlin, or false if the zone is unknown. The zone
// of the server, "Local", is not a name.
func ParseZone(name string) (*time.Location, bool) {
	if name == "" || name == "Local" || len(name) > zoneNameMax {
		return nil, false
	}
	zone, err := time.LoadLocation(name)
	return zone, err == nil
}

// timePattern matches the elements that [timeElement] makes: the time, the kind and the text.
var timePattern = regexp.MustCompile(
	`<time datetime="([0-9T:.Z-]+)" data-t="(at|ago|relative|clock)" title="[^"]*">([^<]*)</time>`)

// inZone rewrites the times of a page, which templates write in UTC, in a zone, so that a page shows them right before
// its script has run. Relative times, such as 3 h, stay as they are.
func inZone(page []byte, zone *time.Location) []byte {
	return timePattern.ReplaceAllFunc(page, func(element []byte) []byte {
		m := timePattern.FindSubmatch(element)
		t, err := time.Parse(timeAttribute, string(m[1]))
		if err != nil {
			return element
		}
		kind, text := string(m[2]), string(m[3])
		switch {
		case kind == "at":
			text = t.In(zone).Format(atLayout)
		case kind == "clock":
			text = t.In(zone).Format(clockLayout)
		case text == t.Format(dayLayout):
			text = t.In(zone).Format(dayLayout)
		}
		return []byte(timeIn(t, zone, kind, text))
	})
}
