package report

import (
	"slices"
	"strings"
)

// names holds the addresses that a report may be about.
type names struct {
	all    []string
	locals []string // local parts in lower case; the domains are also in lower case
	hosts  []string
}

func newNames(all []string) (n names) {
	for _, address := range all {
		if at := strings.LastIndexByte(address, '@'); at > 0 {
			n.all = append(n.all, address)
			n.locals = append(n.locals, strings.ToLower(address[:at]))
			n.hosts = append(n.hosts, strings.ToLower(address[at+1:]))
		}
	}
	return n
}

// in returns the addresses that occur in a text, in their original order.
func (n names) in(text string) (found []string) {
	text = strings.ToLower(text)
	seen := make([]bool, len(n.all))
	for from := 0; ; {
		at := strings.IndexByte(text[from:], '@')
		if at < 0 {
			break
		}
		at += from
		from = at + 1
		end := from
		for end < len(text) && end-from < 256 && hostOctet(text[end]) {
			end++
		}
		host := strings.TrimRight(text[from:end], ".-")
		for i := range n.all {
			if !seen[i] && n.hosts[i] == host && endsWith(text[:at], n.locals[i]) {
				seen[i] = true
			}
		}
	}
	for i, address := range n.all {
		if seen[i] {
			found = append(found, address)
		}
	}
	return found
}

// endsWith reports whether a text ends with the given local part, and not with a longer local part.
func endsWith(text, local string) bool {
	rest, ok := strings.CutSuffix(text, local)
	return ok && (rest == "" || !localByte(rest[len(rest)-1]))
}

// alone returns the addresses whose local part occurs in the line as a separate word.
func (n names) alone(line string) (found []string) {
	words := strings.FieldsFunc(strings.ToLower(line), func(r rune) bool {
		return r < 0x80 && !localByte(byte(r)) && r != '@'
	})
	for i, address := range n.all {
		if len(n.locals[i]) > 2 && slices.Contains(words, n.locals[i]) {
			found = append(found, address)
		}
	}
	return found
}

// sections returns the text about each address that a report names, that is, the lines from one address to the next. If
// the text contains none of the addresses, sections searches for their local parts instead. Lines that begin with "To:"
// or "Cc:" are used only if no other line contains an address.
func (n names) sections(text string) (sections map[string]string, found []string) {
	weak := func(line string) bool {
		line = strings.ToLower(strings.TrimSpace(line))
		return strings.HasPrefix(line, "to:") || strings.HasPrefix(line, "cc:") || strings.HasPrefix(line, "an:")
	}
	for _, look := range []func(string) []string{
		func(line string) []string {
			if weak(line) {
				return nil
			}
			return n.in(line)
		},
		n.in,
		n.alone,
	} {
		if sections, found = n.divide(text, look); len(found) > 0 {
			return sections, found
		}
	}
	return nil, nil
}

// confirmed returns the addresses to which a text says that the message was delivered. X.400 gateways report successes
// and failures in the same message, each with the address in the line after the statement.
func (n names) confirmed(text string) (found []string) {
	said := false
	for line := range strings.Lines(text) {
		now := strings.Contains(strings.ToLower(line), "successfully delivered to")
		if now || said {
			found = append(found, n.in(line)...)
		}
		said = now
	}
	return found
}

func (n names) divide(text string, look func(string) []string) (sections map[string]string, found []string) {
	parts := map[string]*strings.Builder{}
	var open []string
	for line := range strings.Lines(text) {
		if named := look(line); len(named) > 0 {
			open = named
			for _, address := range named {
				if parts[address] == nil {
					parts[address] = &strings.Builder{}
				}
			}
		}
		for _, address := range open {
			if b := parts[address]; b.Len() < maxSection {
				b.WriteString(line[:min(len(line), maxSection)])
			}
		}
	}
	sections = map[string]string{}
	for _, address := range n.all {
		if b := parts[address]; b != nil && !slices.Contains(found, address) {
			found = append(found, address)
			sections[address] = b.String()
		}
	}
	return sections, found
}

func hostOctet(c byte) bool {
	return digit(c) || 'a' <= c && c <= 'z' || c == '.' || c == '-' || c >= 0x80
}

// localByte reports whether a byte may belong to a local part. Characters that are used in prose to quote a local part,
// or that follow one, are excluded.
func localByte(c byte) bool {
	return digit(c) || 'a' <= c && c <= 'z' || strings.IndexByte(".!#$%&*+-/=?^_{|}~", c) >= 0
}
