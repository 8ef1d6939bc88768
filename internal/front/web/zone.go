package web

import (
	"net/http"
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
