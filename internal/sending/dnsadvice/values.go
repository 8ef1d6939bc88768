package dnsadvice

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/mail/dnstext"
)

// foundMax is the maximum length of the value in a problem, in bytes.
const foundMax = 300

// shorten returns values as one text for people.
func shorten(values ...string) string {
	text := visible.Show(strings.Join(values, "\n"))
	if len(text) <= foundMax {
		return text
	}
	text = text[:foundMax]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "…"
}

// isRecord reports whether a TXT value is a record of the given version, such as v=spf1, whatever its case is.
func isRecord(text, version string) bool {
	if len(text) < len(version) || !strings.EqualFold(text[:len(version)], version) {
		return false
	}
	rest := text[len(version):]
	return rest == "" || strings.ContainsAny(rest[:1], " \t;")
}

// records returns the values that are records of a version.
func records(values []string, version string) (all []string) {
	for _, v := range values {
		if isRecord(strings.TrimSpace(v), version) {
			all = append(all, v)
		}
	}
	return all
}

// isSPF and isDKIM report what kind of record is wanted.
func (w *Wanted) isSPF() bool  { return w.Type == "TXT" && isRecord(w.Value, "v=spf1") }
func (w *Wanted) isDKIM() bool { return w.Type == "TXT" && isRecord(w.Value, "v=DKIM1") }

// receives reports whether the record makes mail come to this installation.
func (w *Wanted) receives() bool { return w.Type == "MX" && w.Kind == "Receiving" }

// present reports whether one of the values at the record's name is right.
func (w *Wanted) present(values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool {
		switch {
		case w.isSPF():
			return dnstext.SameInclude(v, w.Value)
		case w.isDKIM():
			return dnstext.SameKey(v, w.Value)
		case w.Type == "MX":
			return strings.EqualFold(hostOf(v), w.Value)
		case w.Type == "TXT":
			return strings.Join(strings.Fields(dnstext.Unquote(v)), " ") == w.Value
		}
		return strings.EqualFold(v, w.Value)
	})
}

// hostOf returns the host of an MX value.
func hostOf(mx string) string {
	_, host, _ := strings.Cut(mx, " ")
	return host
}

// typographic matches characters that word processors use in place of the plain ones in a record.
var typographic = regexp.MustCompile(`[“”„‟‘’‚‛«»‹›‐‑‒–—―\x{00a0}\x{200b}-\x{200f}\x{2060}\x{feff}]`)

// notBase64 finds characters that the key in a DKIM record cannot have.
var notBase64 = regexp.MustCompile(`[^A-Za-z0-9+/=]`)

// mistake is a problem that a value shows by itself.
type mistake struct{ code, what, do string }

// mistakeIn returns the mistake in a TXT value that should be a record of a version, such as v=spf1.
func mistakeIn(text, version string) (m mistake, ok bool) {
	switch at := strings.Index(strings.ToLower(text), strings.ToLower(version)); {
	case typographic.MatchString(text):
		return mistake{"smart_quotes", "The value contains typographic characters, which a word processor or a web page has put in.",
			"Copy the value with the button on this page and enter it again."}, true
	case dnstext.HasBackslash(text):
		return mistake{"backslashes", "The value contains backslashes, which are part of no such record.",
			"Enter the value again without backslashes."}, true
	case strings.Contains(text, `"`):
		return mistake{"quotes", "The value contains quotation marks, so that some receivers do not recognize the record.",
			"Enter the value again without quotation marks."}, true
	case at > 0:
		return mistake{"prefix_in_value", "The value does not begin with " + version + ".",
			"Enter only the value, from " + version + " on."}, true
	}
	return mistake{}, false
}

// hostMistake returns the mistake in the target of a CNAME or MX record.
func hostMistake(found, wanted, zone string) (m mistake, ok bool) {
	scheme := strings.HasPrefix(found, "http:") || strings.HasPrefix(found, "https:") || strings.Contains(found, "/")
	switch {
	case scheme:
		return mistake{"value_scheme", "The value is a URL, but must be a host name.",
			"Enter " + wanted + ", without https:// and without a path."}, true
	case zone != "" && strings.EqualFold(found, wanted+"."+zone):
		return mistake{"value_doubled", "The provider has added the zone to the host in the value.",
			"Enter " + wanted + ". with a dot at the end, which says that the name is complete."}, true
	}
	return mistake{}, false
}
