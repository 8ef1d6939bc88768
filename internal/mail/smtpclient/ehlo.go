package smtpclient

import (
	"slices"
	"strconv"
	"strings"
)

// parseExtensions parses an EHLO reply, ignoring its first line (RFC 5321 section 4.1.1.1).
func parseExtensions(text string) Extensions {
	var e Extensions
	_, lines, _ := strings.Cut(text, "\n")
	for line := range strings.SplitSeq(lines, "\n") {
		keyword, params, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(line)), " ")
		switch keyword {
		case "PIPELINING":
			e.Pipelining = true
		case "8BITMIME":
			e.EightBitMIME = true
		case "SMTPUTF8":
			e.SMTPUTF8 = true
		case "ENHANCEDSTATUSCODES":
			e.EnhancedCodes = true
		case "STARTTLS":
			e.StartTLS = true
		case "SIZE":
			if n, err := strconv.ParseInt(strings.TrimSpace(params), 10, 64); err == nil && n > 0 {
				e.Size = n
			}
		case "AUTH":
			e.Auth = append(e.Auth, strings.Fields(params)...)
		default:
			// Some servers also send the older AUTH syntax that predates RFC 2554.
			if mechanism, ok := strings.CutPrefix(keyword, "AUTH="); ok {
				e.Auth = append(append(e.Auth, mechanism), strings.Fields(params)...)
			}
		}
	}
	slices.Sort(e.Auth)
	e.Auth = slices.Compact(e.Auth)
	return e
}

// validHello reports whether name may be sent in EHLO: it must be printable ASCII without spaces, and at most 255 bytes
// long.
func validHello(name string) bool {
	for i := range len(name) {
		if name[i] <= ' ' || name[i] >= 0x7f {
			return false
		}
	}
	return len(name) <= 255
}
