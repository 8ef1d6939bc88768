package mailparse

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/decode"
	"github.com/postrider/postrider/internal/mail/message"
)

// longestMailbox is the maximum length of one mailbox, in bytes. maxOpen is the maximum number of failed searches, in
// one list, for the end of a quote, comment or bracket. maxLocal is the maximum length of a quoted local part (RFC 5321
// section 4.5.3.1.1).
const (
	longestMailbox = 4 << 10
	maxOpen        = 50
	maxLocal       = 64
)

// parseAddressList parses the addresses in a header field (RFC 5322 section 3.4) and returns at most limit of them. It
// also accepts other forms that mail programs write: groups, semicolons between addresses, names with unquoted commas,
// missing brackets, and encoded words in quotes. The bad result is true if something was omitted: text that is not an
// address, or addresses beyond the limit.
func parseAddressList(s string, limit int) (list []message.Address, bad bool) {
	var b brackets
	before := "" // text before a comma that may be part of a name
	for rest := s; rest != ""; {
		var item string
		var comma bool
		item, rest, comma = b.cutItem(rest)
		item = strings.Trim(item, " ")
		if item == "" {
			continue
		}
		if !strings.ContainsAny(item, "@<") && comma && before == "" {
			before = item
			continue
		}
		if before != "" {
			if strings.Contains(item, "<") && !strings.HasPrefix(item, "<") {
				item = before + ", " + item
			} else {
				bad = true
			}
			before = ""
		}
		if len(list) >= limit {
			return list, true
		}
		var a message.Address
		ok := false
		if len(item) <= longestMailbox {
			a, ok = b.readMailbox(item)
		}
		if ok {
			list = append(list, a)
		} else {
			bad = true
		}
	}
	return list, bad || before != ""
}

// cutItem returns the text before the next comma or semicolon outside quotes, comments and brackets, without the name
// of a group. The comma result reports whether the text was followed by a comma.
func (b *brackets) cutItem(s string) (item, rest string, comma bool) {
	start, address := 0, false
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '@':
			address = true
		case '"', '(', '<':
			i = b.closing(s, i)
		case ',', ';':
			return s[start:i], s[i+1:], s[i] == ','
		case ':':
			if !address && !strings.EqualFold(strings.Trim(s[start:i], " '"), "mailto") {
				start = i + 1
			}
		}
	}
	return s[start:], "", false
}

// brackets finds the characters that close quotes, comments and brackets in a list of addresses.
type brackets struct{ open int } // number of opening characters without a closing character

// closing returns the index of the character that closes the quote, comment or bracket at s[i]. If there is no closing
// character within 1,000 bytes, closing returns i, and s[i] is taken literally. After maxOpen failed searches, every
// opening character is taken literally, to limit the time spent searching.
func (b *brackets) closing(s string, i int) int {
	const farthest = 1000
	if b.open >= maxOpen {
		return i
	}
	end := map[byte]byte{'"': '"', '(': ')', '<': '>'}[s[i]]
	depth := 0
	for j := i + 1; j < min(len(s), i+farthest); j++ {
		switch c := s[j]; {
		case c == '\\' && s[i] != '<':
			j++
		case c == end && depth == 0:
			return j
		case c == end:
			depth--
		case c == '(' && end == ')':
			depth++
		case c == '"' && end == '>':
			if q := strings.IndexByte(s[j+1:min(len(s), j+1+maxLocal)], '"'); q >= 0 {
				j += q + 1
			}
		}
	}
	b.open++
	return i
}

// readMailbox parses one mailbox in an address list. If there are no brackets, the last word with an @ is the address
// and all other words are the name.
func (b *brackets) readMailbox(s string) (message.Address, bool) {
	name, spec, comment := b.splitMailbox(s)
	if end := strings.Index(name, `"@`); spec == "" && strings.HasPrefix(name, `"`) && b.closing(name, 0) == end {
		name, spec = "", name
	}
	if spec == "" {
		words := strings.Fields(name)
		name = ""
		for i, word := range slices.Backward(words) {
			if strings.Contains(word, "@") {
				spec, name = word, strings.Join(slices.Delete(words, i, i+1), " ")
				break
			}
		}
	}
	name = strings.Trim(decodeName(name), " ")
	if name == "" {
		name = strings.Trim(decodeName(comment), " ")
	}
	if len(name) > 1 && name[0] == '\'' && name[len(name)-1] == '\'' {
		name = name[1 : len(name)-1]
	}
	local, domain, ok := readSpec(spec)
	return message.Address{Name: name, Local: local, Domain: domain}, ok
}

// splitMailbox removes comments and separates the name from the address in the last angle brackets. If the mailbox has
// no angle brackets, the whole text is returned as the name.
func (b *brackets) splitMailbox(s string) (name, spec, comment string) {
	var out strings.Builder
	at := strings.LastIndexByte(s, '@')
	for i := 0; i < len(s); i++ {
		end := i
		switch s[i] {
		case '"', '(', '<':
			end = b.closing(s, i)
		}
		switch {
		case s[i] == '(' && end > i:
			comment = s[i+1 : end]
			out.WriteByte(' ')
		case s[i] == '<' && strings.Contains(s[i:end], "@"):
			spec = s[i+1 : end]
		case s[i] == '<' && end == i && i < at:
			return out.String(), s[i+1:], comment // The angle bracket is never closed.
		default:
			out.WriteString(s[i : end+1])
		}
		i = end
	}
	return out.String(), spec, comment
}

// decodeName returns a display name without its quotes and with its encoded words decoded.
func decodeName(s string) string {
	if strings.ContainsAny(s, "\"\\") {
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			switch {
			case s[i] == '\\' && i+1 < len(s):
				i++
				b.WriteByte(s[i])
			case s[i] != '"':
				b.WriteByte(s[i])
			}
		}
		s = b.String()
	}
	return decode.Words(s)
}

// readSpec parses local@domain and ignores any characters that people and old programs put around an address. Local
// parts with misplaced dots are quoted, because some mail providers once assigned such addresses.
func readSpec(s string) (local, domain string, ok bool) {
	if strings.HasPrefix(s, "@") {
		if _, after, found := strings.Cut(s, ":"); found {
			s = after // A source route precedes the address (RFC 5322 section 4.4).
		}
	}
	s = strings.Trim(decode.Words(s), " '<>")
	if len(s) > len("mailto:") && strings.EqualFold(s[:len("mailto:")], "mailto:") {
		s = s[len("mailto:"):]
	}
	at := strings.LastIndexByte(s, '@')
	if at < 1 || len(s) > maxLine {
		return "", "", false
	}
	domain = strings.TrimSuffix(strings.ReplaceAll(s[at+1:], " ", ""), ".")
	local = strings.Trim(s[:at], " ")
	if local != "" && local[0] != '"' {
		local = message.QuoteLocal(strings.ReplaceAll(local, " ", ""))
	}
	local, domain, err := message.ParseSpec(local + "@" + domain)
	return local, domain, err == nil
}
