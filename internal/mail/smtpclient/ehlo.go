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
		case "LIMITS":
			e.Limits = parseLimits(params)
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

// maxLimitDigits is the maximum number of digits in a limit (RFC 9422 section 4).
const maxLimitDigits = 6

// parseLimits parses the parameters of LIMITS, in upper case. Unknown limits and values that are no positive numbers
// are ignored, as RFC 9422 requires. If a limit occurs twice, the lower value counts.
func parseLimits(params string) (l Limits) {
	for word := range strings.FieldsSeq(params) {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil || n == 0 || len(value) > maxLimitDigits {
			continue
		}
		var limit *int
		switch name {
		case "MAILMAX":
			limit = &l.Messages
		case "RCPTMAX":
			limit = &l.Recipients
		case "RCPTDOMAINMAX":
			limit = &l.Domains
		default:
			continue
		}
		if *limit == 0 || int(n) < *limit {
			*limit = int(n)
		}
	}
	return l
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
