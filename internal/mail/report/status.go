package report

import (
	"strconv"
	"strings"
	"sync"
)

// fields parses delivery status fields in any part of the message, regardless of the part's media type.
func (m *mail) fields() (Report, bool) {
	r := Report{Kind: Delivery}
	if !m.byMachine() {
		return r, false
	}
	found := m.isReport("delivery-status")
	for _, f := range m.Files {
		status := strings.HasSuffix(f.ContentType, "delivery-status")
		if !status && (isMessage(f.ContentType) || !hasStatusFields(string(f.Content[:min(len(f.Content), 4<<10)]))) {
			continue
		}
		found = true
		r.readStatus(string(f.Content[:min(len(f.Content), maxText)]))
	}
	if len(r.Recipients) == 0 && hasStatusFields(m.text) {
		found = true
		r.readStatus(m.text)
	}
	words := sync.OnceValue(m.words)
	for i := range r.Recipients {
		r.Recipients[i].complete(words)
	}
	return r, found
}

// hasStatusFields reports whether s contains lines that are delivery status fields.
func hasStatusFields(s string) bool {
	recipient, more := false, false
	for line := range strings.Lines(s) {
		name, _, found := strings.Cut(line, ":")
		if !found || len(name) > len("original-recipient") {
			continue
		}
		switch strings.ToLower(name) {
		case "final-recipient", "original-recipient":
			recipient = true
		case "action", "status", "reporting-mta", "diagnostic-code":
			more = true
		}
		if recipient && more {
			return true
		}
	}
	return false
}

// readStatus parses the groups of fields in a delivery status (RFC 3464 section 2.1). Some programs omit the empty
// lines between groups, so a second field that names a recipient begins the next group.
func (r *Report) readStatus(s string) {
	for block := range blocks(s) {
		var one Recipient
		named := false
		for _, f := range fieldsIn(block) {
			name := strings.ToLower(f.Name)
			if name == "final-recipient" && one.Final != "" || name == "original-recipient" && one.Original != "" {
				r.add(one)
				one = Recipient{}
			}
			if named = one.take(name, f.Value) || named; !named {
				r.takeCommon(name, f.Value)
			}
		}
		if named {
			r.add(one)
		}
	}
}

// takeCommon parses a field that describes the message as a whole rather than one recipient.
func (r *Report) takeCommon(name, value string) {
	switch {
	case name == "x-original-message-id" && r.MessageID == "":
		r.MessageID = identifier(value)
	case strings.HasPrefix(name, "x-") && strings.HasSuffix(name, "-sender") && r.MailFrom == "":
		r.MailFrom = typedAddress(value)
	}
}

// add adds a recipient and returns its index, or -1 if the report already has maxRecipients. If one of the first 20
// recipients has the same address and action, add only fills in a missing diagnostic text.
func (r *Report) add(one Recipient) int {
	for i := range min(len(r.Recipients), 20) {
		have := &r.Recipients[i]
		if one.Final != "" && strings.EqualFold(have.Final, one.Final) && have.Action == one.Action {
			if have.Diagnostic == "" {
				have.Diagnostic = one.Diagnostic
			}
			return i
		}
	}
	if len(r.Recipients) == maxRecipients {
		return -1
	}
	r.Recipients = append(r.Recipients, one)
	return len(r.Recipients) - 1
}

// take parses a per-recipient field and reports whether the field contains the recipient's address.
func (r *Recipient) take(name, value string) bool {
	switch name {
	case "original-recipient":
		r.Original = typedAddress(value)
		return r.Original != ""
	case "final-recipient":
		r.Final = typedAddress(value)
		return r.Final != ""
	case "action":
		word, _, _ := strings.Cut(strings.TrimSpace(strings.ToLower(value)), " ")
		r.Action = strings.Trim(word, ";.,")
		switch {
		case strings.HasPrefix(r.Action, "fail"):
			r.Action = Failed
		case strings.HasPrefix(r.Action, "delay"):
			r.Action = Delayed
		}
	case "status":
		for _, word := range strings.FieldsFunc(value, func(c rune) bool { return strings.ContainsRune(" ();,", c) }) {
			if isStatus(word) && r.Status == "" {
				r.Status = word
			}
		}
	case "diagnostic-code", "x-supplementary-info":
		if r.Diagnostic == "" {
			r.Diagnostic = strings.Join(strings.Fields(untyped(value)), " ")
		}
	case "remote-mta":
		r.RemoteMTA = untyped(value)
	}
	return false
}

// complete fills in missing fields from the other fields and from the report's text.
func (r *Recipient) complete(words func() statements) {
	if r.Diagnostic == "" && r.Action != Delivered && r.Action != Relayed && r.Action != Expanded {
		r.Diagnostic = words().of(r.Final)
	}
	code, enhanced, _ := splitReply(r.Diagnostic)
	if enhanced != "" && (r.Status == "" || generic(r.Status) && enhanced[0] == r.Status[0]) {
		r.Status = enhanced
	}
	switch r.Action {
	case Failed, Delayed, Delivered, Relayed, Expanded:
		return
	}
	switch {
	case strings.HasPrefix(r.Status, "2."):
		r.Action = Delivered
	case strings.HasPrefix(r.Status, "4.") || r.Status == "" && code/100 == 4:
		r.Action = Delayed
	default:
		r.Action = Failed
	}
}

// typedAddress parses an address such as `rfc822; user@example.com` or `utf-8; ...` (RFC 6533 section 3), with or
// without the type.
func typedAddress(s string) string {
	kind, address, found := strings.Cut(s, ";")
	if !found {
		kind, address = "", s
	}
	address = strings.TrimSpace(address)
	if strings.EqualFold(strings.TrimSpace(kind), "utf-8") {
		address = unescapeUTF8(address)
	}
	return bareAddress(address)
}

// bareAddress returns the address in s, or "" if there is none.
func bareAddress(s string) string {
	if _, after, found := strings.Cut(s, "<"); found {
		s, _, _ = strings.Cut(after, ">")
	}
	s = strings.Trim(s, " \t'<>,;:()[]")
	if !strings.HasPrefix(s, `"`) || strings.HasSuffix(s, `"`) {
		s = strings.Trim(s, `"' `)
	}
	at := strings.LastIndexByte(s, '@')
	if at < 1 || at == len(s)-1 || len(s) > 320 || strings.ContainsAny(s[at:], " /\\()<>") ||
		strings.ContainsAny(s, "<>") || strings.Contains(s[:at], " ") && s[0] != '"' {
		return ""
	}
	return s
}

// unescapeUTF8 decodes escapes such as \x{20AC} (RFC 6533 section 3).
func unescapeUTF8(s string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, `\x{`)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		hex, rest, closed := strings.Cut(after[:min(len(after), 8)], "}")
		n, err := strconv.ParseUint(hex, 16, 32)
		if !closed || err != nil || n > 0x10ffff || n < ' ' {
			b.WriteString(`\x{`)
			s = after
			continue
		}
		b.WriteRune(rune(n))
		s = rest + after[min(len(after), 8):]
	}
}

// untyped removes the type prefix from values such as `smtp; 550 ...` and `dns; mx.example.com`.
func untyped(s string) string {
	kind, text, found := strings.Cut(s, ";")
	if !found || strings.ContainsAny(strings.TrimSpace(kind), " .:") {
		return strings.TrimSpace(s)
	}
	return strings.TrimSpace(text)
}
