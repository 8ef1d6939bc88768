package report

import "strings"

// failures and delays are phrases, in lower case, that precede the addresses in reports without fields. The phrases
// come from qmail, Exim, Sendmail, Postfix, Exchange, Domino and Groupwise, and from old reports by large hosts.
var (
	failures = []string{
		"wasn't able to deliver your message", "was not able to deliver your message", "could not be delivered",
		"couldn't be delivered",
		"had permanent fatal errors", "had delivery errors", "had delivery problems", "undeliverable to",
		"did not reach the following recipient",
		"cannot be reached", "delivery has failed", "delivery to the following recipient", "failed permanently",
		"unable to deliver",
		"was not delivered", "wasn't delivered", "not able to deliver", "following address(es) failed",
		"following addresses failed",
		"delivery failed", "delivery failure", "cannot be delivered", "can't be delivered", "undelivered mail",
		"unknown users", "could not deliver",
		"failed addresses follow", "permanent error", "message undeliverable", "has been rejected", "returned to sender",
	}
	delays = []string{
		"has not yet been delivered", "not been delivered yet", "still being retried", "will continue to be retried",
		"will be retried",
		"had transient non-fatal errors", "delivery delayed", "delivery is delayed", "has been delayed", "is delayed",
		"will keep trying",
		"will continue trying", "delivery attempts will continue", "no action is required on your part",
		"there is a temporary problem",
		"do not need to resend", "not need to resend",
	}
	// expiries are phrases in reports from hosts that gave up after several attempts.
	expiries = []string{"retry timeout exceeded", "failing for a long time", "retry time not reached",
		"delivery time expired", "message expired",
		"expired after",
		"queue too long", "maximum queue time", "retries exceeded", "gave up after", "giving up after", "timed out"}
	// copies are phrases that precede a copy of the reported message.
	copies = []string{
		"--- below this line is a copy", "this is a copy of the message", "this is a copy of your message",
		"copy of the message", "original message",
		"original headers", "message header", "unsent message below", "your message follows", "message follows",
		"returned message",
		"the body of the message is", "headers of your message",
	}
)

// administrators begins the part of an X.400 gateway's report that repeats the report in technical terms.
const administrators = "***** the following information is directed towards the local administrator"

// beforeCopy returns a report's text up to the copy of the reported message.
func beforeCopy(text string) string {
	at := 0
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(strings.ToLower(line))
		if strings.HasPrefix(trimmed, "-") && first(trimmed, copies) >= 0 || strings.HasSuffix(trimmed, ":") &&
			strings.HasPrefix(trimmed, "original message") || strings.HasPrefix(trimmed, administrators) {
			return text[:at]
		}
		if strings.HasPrefix(trimmed, "received: from ") || strings.HasPrefix(trimmed, "return-path: <") ||
			strings.HasPrefix(strings.ToLower(line[:min(len(line), 20)]), "message-id: <") {
			return text[:at]
		}
		at += len(line)
	}
	return text
}

// lowerASCII converts only ASCII letters to lower case, so that indexes into the result are also valid for s.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// first returns the index of the first occurrence of any of the words in s, or -1 if there is none.
func first(s string, words []string) int {
	at := -1
	for _, w := range words {
		if n := strings.Index(s, w); n >= 0 && (at < 0 || n < at) {
			at = n
		}
	}
	return at
}

// readLines adds as a recipient each address at the beginning of a line, or at the end of a line that states a failure.
// The lines that follow an address become its diagnostic text.
func (r *Report) readLines(words, action string) {
	open := -1 // index of the recipient that the current lines are about
	empty := false
	for line := range strings.Lines(words) {
		trimmed := strings.TrimSpace(line)
		if trimmed == "" {
			empty = true
			continue
		}
		if strings.HasPrefix(trimmed, ">") {
			continue // This line is quoted from the reported message.
		}
		address, rest := leadingAddress(trimmed)
		if local := strings.ToLower(address); strings.HasPrefix(local, "postmaster@") ||
			strings.HasPrefix(local, "mailer-daemon@") {
			address = "" // This address belongs to a contact person or to the author of the report.
		}
		if address == "" && open < 0 && first(strings.ToLower(trimmed), failures) >= 0 {
			address, rest = trailingAddress(trimmed), trimmed
		}
		switch {
		case address != "":
			open = r.add(Recipient{Final: address, Action: action, Diagnostic: rest})
		case open >= 0 && len(r.Recipients[open].Diagnostic) < 1000 && (!empty || r.Recipients[open].unfinished()):
			d := &r.Recipients[open].Diagnostic
			*d = strings.TrimSpace(*d + " " + trimmed)
		case open >= 0 && empty:
			if code, _, _ := splitReply(r.Recipients[open].Diagnostic); code == 0 {
				if code, enhanced, _ := splitReply(trimmed); code != 0 || enhanced != "" {
					d := &r.Recipients[open].Diagnostic
					*d = strings.TrimSpace(*d + " " + trimmed)
				}
			}
		}
		empty = false
	}
}

// unfinished reports whether more text about the recipient is expected in the following lines.
func (r *Recipient) unfinished() bool {
	return r.Diagnostic == "" || strings.HasSuffix(r.Diagnostic, ":")
}

// statements holds what a report's text says about a failure.
type statements struct {
	reply string // a host's reply, which applies to any recipient
	each  []Recipient
}

func (m *mail) words() statements {
	var r Report
	words := beforeCopy(m.text)
	r.readLines(words, Failed)
	return statements{replyIn(words), r.Recipients}
}

// of returns the diagnostic text for an address, or the host's reply if there is no such text.
func (s statements) of(address string) string {
	for _, one := range s.each {
		if strings.EqualFold(one.Final, address) && one.Diagnostic != "" {
			return one.Diagnostic
		}
	}
	return s.reply
}

// leadingAddress returns the address at the beginning of a line, and the text after the address.
func leadingAddress(line string) (address, rest string) {
	line = strings.TrimPrefix(line, "* ")
	if strings.HasPrefix(line, "<") {
		inner, after, found := strings.Cut(line[1:], ">")
		if !found {
			return "", ""
		}
		return bareAddress(inner), strings.TrimLeft(after, " :.-")
	}
	word, rest, _ := strings.Cut(line, " ")
	if name, _, found := strings.Cut(word, "<"); found && name != "" {
		word = name // user@example.com<mailto:user@example.com>
	}
	if strings.Contains(word, "://") || strings.HasPrefix(word, "mailto:") {
		return "", ""
	}
	return bareAddress(word), strings.TrimLeft(rest, " :.-")
}

// trailingAddress returns the last address in a line.
func trailingAddress(line string) string {
	words := strings.Fields(line[max(0, len(line)-400):])
	for i := len(words) - 1; i >= 0; i-- {
		if a := bareAddress(words[i]); a != "" {
			return a
		}
	}
	return ""
}

// replyIn returns the first line in a report that contains a host's reply.
func replyIn(words string) string {
	for line := range strings.Lines(words) {
		if line = strings.TrimSpace(line); len(line) > 1000 {
			line = strings.ToValidUTF8(line[:1000], "")
		}
		if code, enhanced, _ := splitReply(line); code != 0 && enhanced != "" || code != 0 && leadsWith(line, code) {
			return line
		}
	}
	return ""
}

// leadsWith reports whether a line begins with the given reply code. A number elsewhere in the line may be something
// other than a reply code.
func leadsWith(line string, code int) bool {
	line = strings.TrimLeft(line, "<>' \"")
	return len(line) > 3 && digit(line[0]) && int(line[0]-'0') == code/100 && (line[3] == ' ' || line[3] == '-' ||
		line[3] == ':')
}
