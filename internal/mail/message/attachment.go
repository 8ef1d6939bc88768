package message

import (
	"bytes"
	"mime"
	"strconv"
	"strings"
	"unicode/utf8"
)

// These are the maximum lengths of an attachment's file name, media type and content id, in bytes.
const (
	maxFilename  = 1000
	maxMediaType = 1000
	maxContentID = 256
)

// Check returns an *AttachmentError if the attachment's file name, media type or content id cannot be written to a
// header. A file name must be at most 1,000 bytes of UTF-8 without line breaks or NUL. A media type must follow RFC
// 2045 section 5.1. A content id may have at most 256 visible ASCII characters and no angle brackets.
func (a *Attachment) Check() error {
	switch {
	case len(a.Filename) > maxFilename || strings.ContainsAny(a.Filename, "\r\n\x00") || !utf8.ValidString(a.Filename):
		return &AttachmentError{a.Filename,
			"The attachment's file name is longer than 1,000 octets, is not UTF-8, or has a line break or a NUL."}
	case len(a.ContentID) > maxContentID || !printableASCII(a.ContentID) || strings.ContainsAny(a.ContentID, " <>"):
		return &AttachmentError{a.Filename,
			"The attachment's content id must be at most 256 visible ASCII characters, without spaces and angle brackets."}
	case a.ContentType == "":
		return nil
	}
	formatted := ""
	if len(a.ContentType) <= maxMediaType && !strings.ContainsAny(a.ContentType, "\r\n\x00") {
		formatted = formatMediaType(a.ContentType)
	}
	if formatted == "" || len("Content-Type: ")+longestPiece(formatted) > maxLine {
		return &AttachmentError{a.Filename,
			"The attachment's content type is not a media type; write it as in `application/pdf`."}
	}
	return nil
}

// attachment writes an attachment as a MIME part. The attachment must already have passed Check.
func (c *composer) attachment(a *Attachment, disposition string) {
	contentType := TypeByFilename(a.Filename)
	if a.ContentType != "" {
		contentType = formatMediaType(a.ContentType)
	}
	encoding := base64Encoded
	switch {
	case strings.HasPrefix(contentType, "message/") && isCleanText(a.Content):
		// Attached messages must not be encoded (RFC 2046 section 5.2.1).
		encoding = sevenBit
	case strings.HasPrefix(contentType, "message/") || strings.HasPrefix(contentType, "multipart/"):
		contentType = octetStream
	}
	c.out = appendField(c.out, "Content-Type", contentType)
	c.out = append(c.out, "Content-Transfer-Encoding: "...)
	c.out = append(append(c.out, encoding.String()...), "\r\n"...)
	c.out = appendField(c.out, "Content-Disposition", disposition+filenameParameter(a.Filename))
	if a.ContentID != "" {
		c.out = append(c.out, "Content-ID: <"...)
		c.out = append(append(c.out, a.ContentID...), ">\r\n"...)
	}
	c.out = append(c.out, "\r\n"...)
	if encoding == sevenBit {
		c.out = append(c.out, a.Content...)
	} else {
		c.out = appendBase64(c.out, a.Content)
	}
}

// formatMediaType returns the media type s in the form used in headers, or "" if s is not a media type.
func formatMediaType(s string) string {
	mediaType, parameters, err := mime.ParseMediaType(s)
	if err != nil || !strings.Contains(mediaType, "/") {
		return ""
	}
	for name, value := range parameters {
		if strings.ContainsAny(value, "\r\n\x00") || len(name)+len(value) > maxMediaType/2 {
			return ""
		}
	}
	return mime.FormatMediaType(mediaType, parameters)
}

// isCleanText reports whether b may be sent unencoded. The content must be ASCII in CRLF lines of at most 998 bytes. It
// must not contain anything that looks like one of this package's boundaries.
func isCleanText(b []byte) bool {
	if bytes.Contains(b, []byte("--"+boundaryMark)) {
		return false
	}
	for rest := b; len(rest) > 0; {
		line, after, found := bytes.Cut(rest, []byte("\n"))
		rest = after
		if found {
			var ok bool
			if line, ok = bytes.CutSuffix(line, []byte("\r")); !ok {
				return false
			}
		}
		if len(line) > maxLine {
			return false
		}
		for _, c := range line {
			if c == 0 || c == '\r' || c >= utf8.RuneSelf {
				return false
			}
		}
	}
	return true
}

// filenameParameter returns the filename parameter of Content-Disposition. A short name in printable ASCII is quoted.
// Any other name is percent-encoded and split into numbered pieces, which can be folded (RFC 2231 sections 3 and 4).
func filenameParameter(name string) string {
	const room = wrapAt - len(" filename*00*=") - len(";")
	if name == "" {
		return ""
	}
	// Some mail clients decode file names that look like encoded words, although encoded words are not allowed in
	// parameters (RFC 2047 section 5).
	if printableASCII(name) && len(name) <= room && !strings.Contains(name, "=?") {
		return "; filename=" + string(appendQuoted(nil, name))
	}
	const charset = "UTF-8''"
	var pieces []string
	piece := []byte(charset)
	for _, r := range name {
		encoded := appendPercent(nil, r)
		if len(piece)+len(encoded) > room {
			pieces = append(pieces, string(piece))
			piece = piece[:0]
		}
		piece = append(piece, encoded...)
	}
	pieces = append(pieces, string(piece))
	if len(pieces) == 1 {
		return "; filename*=" + pieces[0]
	}
	var b strings.Builder
	for i, p := range pieces {
		b.WriteString("; filename*")
		b.WriteString(strconv.Itoa(i))
		b.WriteString("*=")
		b.WriteString(p)
	}
	return b.String()
}

func appendPercent(dst []byte, r rune) []byte {
	var buf [utf8.UTFMax]byte
	for _, c := range buf[:utf8.EncodeRune(buf[:], r)] {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}
