package mailparse

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"

	"github.com/postrider/postrider/internal/mail/decode"
)

// decodeText returns the text of a MIME part in UTF-8, with LF line endings and without NUL or a byte order mark.
func decodeText(b []byte, name string, isHTML bool) string {
	if name == "" && isHTML && !utf8.Valid(b) {
		_, name, _ = charset.DetermineEncoding(b[:min(len(b), 1024)], "")
	}
	s := strings.TrimPrefix(decode.Charset(name, b), "\uFEFF")
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "")
	}
	if strings.IndexByte(s, '\r') < 0 {
		return s
	}
	var out strings.Builder
	out.Grow(len(s))
	for {
		i := strings.IndexByte(s, '\r')
		if i < 0 {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:i])
		out.WriteByte('\n')
		s = strings.TrimPrefix(s[i+1:], "\n")
	}
}
