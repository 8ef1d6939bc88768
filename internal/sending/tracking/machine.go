package tracking

import (
	_ "embed"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

// recognise returns the reason why a single hit is attributed to a bot, or "". It does not look at other hits.
func recognise(h *Hit) Reason {
	switch {
	case h.Prefetch || isPrivacyProxy(h):
		return ByPrefetch
	case isProgram(h.UserAgent) || h.UserAgent == "" && h.URL != "":
		return ByUserAgent // All browsers send a user agent. Some mail programs send none for images.
	case filters.contain(h.Addr):
		return ByAddress
	}
	return ""
}

// isPrivacyProxy reports whether Apple Mail's privacy protection loads the pixel. It loads the images of every message
// on arrival, even if nobody opens it, and sends only this user agent. The image proxies of Gmail and Yahoo are not
// included, because they load images when somebody opens the message.
func isPrivacyProxy(h *Hit) bool { return h.URL == "" && h.UserAgent == "Mozilla/5.0" }

// programs are words of user agents, in lower case, that occur in no browser or mail program for people.
var programs = map[string]bool{
	// link previews
	"facebookexternalhit": true, "whatsapp": true, "skypeuripreview": true, "bingpreview": true, "embedly": true,
	"iframely": true, "vkshare": true, "imgproxy": true,
	// filters and other services
	"barracuda": true, "mimecast": true, "proofpoint": true, "feedfetcher": true, "mediapartners": true,
	"inspectiontool": true,
	// libraries and tools
	"curl": true, "wget": true, "python": true, "aiohttp": true, "libwww": true, "scrapy": true, "httpclient": true,
	"axios": true, "headlesschrome": true, "phantomjs": true, "lighthouse": true,
}

// programEndings are endings of words that also identify programs.
var programEndings = []string{"bot", "crawler", "spider", "preview", "scanner"}

// programNames are parts of user agents, of several words each, that also identify programs.
var programNames = []string{"go-http-client", "node-fetch", "existence discovery", "protocol discovery"}

// isProgram reports whether a user agent names a crawler, a link previewer, a library or a similar program.
func isProgram(userAgent string) bool {
	lower := strings.ToLower(userAgent)
	for word := range strings.FieldsFuncSeq(lower, func(r rune) bool { return !unicode.IsLetter(r) }) {
		if programs[word] {
			return true
		}
		for _, ending := range programEndings {
			if strings.HasSuffix(word, ending) && word != "cubot" { // a brand of phones
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

// filters are the networks of mail filters.
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

// mustParse parses lines with a network and a description. Comments begin with #.
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
