package receiving

import (
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/postrider/postrider/internal/mail/message"
)

// withImages puts files that the HTML names by cid: URLs (RFC 2392) into it as data URIs. Names of no file stay, and all
// that would make it grow by more than inlineMax: one image may be named any number of times.
func withImages(html string, files []message.File) string {
	byID := map[string]*message.File{}
	for i := range files {
		if cid := files[i].ContentID; cid != "" && byID[cid] == nil {
			byID[cid] = &files[i]
		}
	}
	if len(byID) == 0 {
		return html
	}
	var b strings.Builder
	left := inlineMax
	for {
		before, rest, found := cutCID(html)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		end := strings.IndexAny(rest[len("cid:"):], "\"'<>() \t\r\n&")
		if end < 0 {
			end = len(rest) - len("cid:")
		}
		ref := rest[:len("cid:")+end]
		f := lookUp(byID, ref[len("cid:"):])
		if f == nil || base64.StdEncoding.EncodedLen(len(f.Content)) > left {
			b.WriteString(ref)
		} else {
			n := b.Len()
			b.WriteString("data:" + mediaType(f.ContentType) + ";base64,")
			b.WriteString(base64.StdEncoding.EncodeToString(f.Content))
			left -= b.Len() - n
		}
		html = rest[len(ref):]
	}
}

// cutCID parts a text before the next "cid:", in any case, that does not stand within a word.
func cutCID(html string) (before, rest string, found bool) {
	for from := 0; ; {
		i := strings.IndexByte(html[from:], ':')
		if i < 0 {
			return html, "", false
		}
		i += from
		from = i + 1
		if i >= 3 && strings.EqualFold(html[i-3:i], "cid") && (i == 3 || !isWord(html[i-4])) {
			return html[:i-3], html[i-3:], true
		}
	}
}

func isWord(c byte) bool {
	return c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func lookUp(byID map[string]*message.File, ref string) *message.File {
	if f := byID[ref]; f != nil {
		return f
	}
	if decoded, err := url.PathUnescape(ref); err == nil {
		return byID[decoded]
	}
	return nil
}

// mediaType is a type as it may stand in an attribute: the message chose it.
func mediaType(t string) string {
	if t == "" || strings.ContainsFunc(t, func(r rune) bool {
		return !(r < 0x80 && isWord(byte(r))) && !strings.ContainsRune("/+.", r)
	}) {
		return "application/octet-stream"
	}
	return t
}
