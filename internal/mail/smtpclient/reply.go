package smtpclient

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// These constants limit the length of a reply. RFC 5321 section 4.5.3.1.5 limits reply lines to 512 octets, but some
// hosts send longer lines.
const (
	maxReplyLine  = 2000 // bytes, with CRLF
	maxReplyLines = 100
	maxReplyText  = 2048 // bytes of Reply.Text
)

// Reply is a host's reply to one command (RFC 5321 section 4.2).
type Reply struct {
	Code     int    // 200 to 599; 0 means that there is no reply
	Enhanced string // "5.1.1" (RFC 3463), or empty
	Text     string // lines joined by \n, without codes; at most 2 KiB of valid, printable UTF-8
	Local    bool   // whether this package created the reply, based on the extensions that the host offers
}

// BeyondLimits reports whether this package created the reply for a recipient beyond the host's LIMITS. The message can
// be sent to this recipient in a further transaction at once.
func (r Reply) BeyondLimits() bool { return r.Local && r.Code == 452 && r.Enhanced == beyondLimits }

// Positive reports whether the command was accepted (2xx).
func (r Reply) Positive() bool { return r.Code/100 == 2 }

// Temporary reports whether the host refused temporarily (4xx).
func (r Reply) Temporary() bool { return r.Code/100 == 4 }

// Permanent reports whether the host refused permanently (5xx).
func (r Reply) Permanent() bool { return r.Code/100 == 5 }

// String returns the reply as one line, such as "550 5.1.1 no such user".
func (r Reply) String() string {
	if r.Code == 0 {
		return "no reply"
	}
	s := fmt.Sprintf("%03d", r.Code)
	if r.Enhanced != "" {
		s += " " + r.Enhanced
	}
	if r.Text != "" {
		s += " " + strings.ReplaceAll(r.Text, "\n", " ")
	}
	return s
}

// readReply reads one reply of one or more lines. If the reply is malformed, the error is ErrProtocol or ErrEndless;
// other errors come from the connection. readReply calls each for every line, without its line ending, before it checks
// the line.
func readReply(r *bufio.Reader, each func(line []byte)) (Reply, error) {
	var reply Reply
	var text []byte
	for n := range maxReplyLines {
		line, err := readLine(r)
		if err != nil {
			return Reply{}, err
		}
		each(line)
		code, more, rest, err := splitLine(line)
		if err != nil {
			return Reply{}, err
		}
		if n == 0 {
			reply.Code = code
			reply.Enhanced = enhancedCode(rest, code)
		} else {
			if code != reply.Code {
				return Reply{}, fmt.Errorf("%w: a reply of %d and %d", ErrProtocol, reply.Code, code)
			}
			text = append(text, '\n')
		}
		text = append(text, trimEnhanced(rest, reply.Enhanced)...)
		if !more {
			reply.Text = cleanText(text, maxReplyText)
			return reply, nil
		}
	}
	return Reply{}, fmt.Errorf("%w: more than %d lines", ErrEndless, maxReplyLines)
}

// readLine returns the next line without its line ending; the line is valid until the next read. A bare LF ends a line
// too, because hosts that send one mean it as a line ending.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err == bufio.ErrBufferFull || len(line) > maxReplyLine {
		return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrEndless, maxReplyLine)
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

// splitLine splits a reply line into its code and its text, and reports whether another line follows.
func splitLine(line []byte) (code int, more bool, text []byte, err error) {
	if len(line) < 3 || !digits(line[:3]) || line[0] < '2' || line[0] > '5' {
		return 0, false, nil, fmt.Errorf("%w: %q is not a reply", ErrProtocol, clip(line, 60))
	}
	code = int(line[0]-'0')*100 + int(line[1]-'0')*10 + int(line[2]-'0')
	if len(line) == 3 {
		return code, false, nil, nil
	}
	if line[3] != ' ' && line[3] != '-' {
		return 0, false, nil, fmt.Errorf("%w: %q is not a reply", ErrProtocol, clip(line, 60))
	}
	return code, line[3] == '-', line[4:], nil
}

// enhancedCode returns the enhanced status code at the start of text, or "". The class of the enhanced code must match
// the reply code (RFC 2034 section 4). Some hosts send enhanced codes without announcing the extension, so every reply
// is checked for one.
func enhancedCode(text []byte, code int) string {
	word, _, _ := bytes.Cut(text, []byte(" "))
	if len(word) < 5 || len(word) > 9 || int(word[0]-'0') != code/100 {
		return ""
	}
	class, rest, _ := bytes.Cut(word, []byte("."))
	subject, detail, ok := bytes.Cut(rest, []byte("."))
	if !ok || len(class) != 1 || len(subject) > 3 || len(detail) > 3 || !digits(subject) || !digits(detail) {
		return ""
	}
	return string(word)
}

// trimEnhanced removes the enhanced status code from the start of text, because a host may repeat it in each line.
func trimEnhanced(text []byte, enhanced string) []byte {
	rest, ok := bytes.CutPrefix(text, []byte(enhanced))
	if enhanced == "" || !ok || len(rest) > 0 && rest[0] != ' ' {
		return text
	}
	return bytes.TrimPrefix(rest, []byte(" "))
}

func digits(s []byte) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(s) > 0
}

// clip returns at most the first n bytes of line, for use in an error message.
func clip(line []byte, n int) []byte { return line[:min(len(line), n)] }

// cleanText returns text as valid UTF-8 of at most limit bytes, with line feeds as its only control characters. Text
// from a host is stored in databases and shown on screens, where NUL and escape sequences are dangerous.
func cleanText(text []byte, limit int) string {
	if len(text) <= limit && plainText(text) {
		return string(text)
	}
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case r == '\t':
			r = ' '
		case r != '\n' && unicode.IsControl(r):
			r = utf8.RuneError
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// plainText reports whether text consists only of printable ASCII and line feeds, as nearly all replies do.
func plainText(text []byte) bool {
	for _, c := range text {
		if c >= 0x7f || c < ' ' && c != '\n' {
			return false
		}
	}
	return true
}
