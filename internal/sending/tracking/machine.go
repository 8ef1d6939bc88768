package tracking

import (
	_ "embed"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

// recognise returns the reason why a hit, considered on its own, is attributed to a bot, or "" if there is none.
func recognise(h *Hit) Reason {
	switch {
	case h.Prefetch || isPrivacyProxy(h):
		return ByPrefetch
	case isProgram(h.UserAgent) || h.UserAgent == "" && h.URL != "":
		return ByUserAgent // Every browser sends a user agent, but some mail apps send none when they load images.
	case filters.contain(h.Addr):
		return ByAddress
	}
	return ""
}

// isPrivacyProxy reports whether Apple Mail Privacy Protection loads the tracking pixel. Apple Mail Privacy Protection
// loads the images of every message on arrival, even if nobody opens the message, and sends only this user agent. The
// image proxies of Gmail and Yahoo are not included, because they load images only when somebody opens the message.
func isPrivacyProxy(h *Hit) bool { return h.URL == "" && h.UserAgent == "Mozilla/5.0" }

// programs contains words, in lower case, that occur in user agents of bots but not in those of browsers or mail apps.
var programs = map[string]bool{
	// link previews
	"facebookexternalhit": true, "whatsapp": true, "skypeuripreview": true, "bingpreview": true, "embedly": true,
	"iframely": true, "vkshare": true, "imgproxy": true,
	// mail filters and other services
	"barracuda": true, "mimecast": true, "proofpoint": true, "feedfetcher": true, "mediapartners": true,
	"inspectiontool": true,
	// libraries and tools
	"curl": true, "wget": true, "python": true, "aiohttp": true, "libwww": true, "scrapy": true, "httpclient": true,
	"axios": true, "headlesschrome": true, "phantomjs": true, "lighthouse": true,
}

// programEndings contains word endings that also identify a user agent as a bot.
var programEndings = []string{"bot", "crawler", "spider", "preview", "scanner"}

// programNames contains multi-word names that also identify a user agent as a bot.
var programNames = []string{"go-http-client", "node-fetch", "existence discovery", "protocol discovery"}

// isProgram reports whether a user agent names a crawler, a link previewer, a library or a similar bot.
func isProgram(userAgent string) bool {
	lower := strings.ToLower(userAgent)
	for word := range strings.FieldsFuncSeq(lower, func(r rune) bool { return !unicode.IsLetter(r) }) {
		if programs[word] {
			return true
		}
		for _, ending := range programEndings {
			if strings.HasSuffix(word, ending) && word != "cubot" { // Cubot is a brand of phones
				return true
			}
		}
	}
	for _, name := range programNames {
		if strings.Contains(lower, name) {
			return true
		}
	}
	return false
}

//go:embed ranges.txt
var rangesText string

// filters contains the IP networks of mail filters.
var filters = mustParse(rangesText)

type networks []netip.Prefix

func (n networks) contain(a netip.Addr) bool {
	for _, p := range n {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// mustParse parses lines that contain a network and a description. Lines that start with # are comments.
func mustParse(text string) (all networks) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		prefix, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if prefix == "" {
			continue
		}
		p, err := netip.ParsePrefix(prefix)
		if err != nil || p != p.Masked() {
			panic(fmt.Sprintf("tracking: ranges.txt: %q is not a prefix", prefix))
		}
		all = append(all, p)
	}
	return all
}
