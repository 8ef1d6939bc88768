package preflight

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/mail/message"
)

// phoneSubject is the maximum number of subject characters that mail apps on phones display.
const phoneSubject = 50

// subject checks whether phones display the complete subject.
func subject(in *Input) Result {
	n := utf8.RuneCountInString(strings.TrimSpace(in.Subject))
	switch {
	case n == 0:
		return result("subject", Warning, "The email has no subject, without which it is not accepted over HTTP and is "+
			"rarely opened. Give one.")
	case n > phoneSubject:
		return result("subject", Info, "The subject has %d characters, of which phones show about %d at most. Say what "+
			"matters in these.", n, phoneSubject)
	}
	return result("subject", Pass, "The subject is short enough for phones.")
}

// textPart checks whether the email can be read without HTML.
func textPart(in *Input) Result {
	if in.Text == "" {
		return result("text_part", Warning,
			"The email has no text part, which some programs show and filters expect. Give "+
				"`text`, or leave it out to have it made from the words of the HTML.")
	}
	return result("text_part", Pass, "The email has a text part.")
}

// noReply checks whether a recipient can reply to the email.
func noReply(in *Input) Result {
	if !isNoReply(in.From.Local) {
		return result("no_reply", Pass, "The sender's address looks like one that can be answered.")
	}
	for _, text := range in.ReplyTo {
		if a, err := message.ParseAddress(text); err == nil && !isNoReply(a.Local) {
			return result("no_reply", Info, "The sender is %s, but replies go to another address. Send from an address that "+
				"readers know and can answer.", in.From.Addr())
		}
	}
	return result("no_reply", Warning, "The sender is %s, which invites nobody to answer. Send from an address that is "+
		"read, or set `reply_to` to one.", in.From.Addr())
}

// isNoReply reports whether a local part indicates that replies are not read.
func isNoReply(local string) bool {
	local, _, _ = strings.Cut(strings.ToLower(local), "+")
	switch strings.NewReplacer("-", "", "_", "", ".", "").Replace(local) {
	case "noreply", "donotreply", "dontreply":
		return true
	}
	return false
}

// unsubscribe checks whether recipients of bulk mail can unsubscribe with one click (RFC 2369, RFC 8058).
func unsubscribe(in *Input) Result {
	const id = "unsubscribe"
	var lists, posts []string
	for _, f := range in.Headers {
		switch strings.ToLower(f.Name) {
		case "list-unsubscribe":
			lists = append(lists, f.Value)
		case "list-unsubscribe-post":
			posts = append(posts, f.Value)
		}
	}
	const instruction = "Set the headers `List-Unsubscribe: <https://...>` and `List-Unsubscribe-Post: " +
		"List-Unsubscribe=One-Click`, where the address takes a POST and needs no further click (RFC 8058)."
	switch {
	case len(lists) == 0 && !in.Bulk:
		return result(id, Pass, "The email is not marked as bulk mail by a header such as `List-Id` or `Precedence`; only "+
			"bulk mail must offer to unsubscribe.")
	case len(lists) == 0:
		return result(id, Problem,
			"The email is bulk mail and offers no way to unsubscribe, which large mailbox providers "+
				"require. "+instruction)
	case len(lists) > 1 || len(posts) > 1:
		return result(id, Problem, "The email has several headers `List-Unsubscribe` or `List-Unsubscribe-Post`. Keep one "+
			"of each.").with(append(lists, posts...)...)
	}
	https, http := false, false
	for _, uri := range listURIs(lists[0]) {
		scheme, _, _ := strings.Cut(uri, ":")
		https = https || strings.EqualFold(scheme, "https")
		http = http || strings.EqualFold(scheme, "http")
	}
	switch {
	case !https && http:
		return result(id, Problem, "The address in `List-Unsubscribe` begins with http:, and one click works only with "+
			"https:. "+instruction).with(lists[0])
	case !https:
		return result(id, Problem, "The header `List-Unsubscribe` has no https: address, so that one click cannot work. "+
			instruction).with(lists[0])
	case len(posts) == 0:
		return result(id, Problem, "The header `List-Unsubscribe-Post` is missing, without which one click does not work. "+
			instruction)
	case !strings.EqualFold(strings.TrimSpace(posts[0]), "List-Unsubscribe=One-Click"):
		return result(id, Problem,
			"The header `List-Unsubscribe-Post` must be `List-Unsubscribe=One-Click`, nothing else.").
			with(posts[0])
	}
	return result(id, Pass, "Readers can unsubscribe with one click.")
}

// listURIs returns the URIs between angle brackets in a List-Unsubscribe field (RFC 2369 section 2).
func listURIs(value string) (all []string) {
	for {
		_, rest, ok := strings.Cut(value, "<")
		if !ok {
			return all
		}
		uri, rest, ok := strings.Cut(rest, ">")
		if !ok {
			return all
		}
		all, value = append(all, strings.TrimSpace(uri)), rest
	}
}

// kilobytes formats a size in KB and rounds it up.
func kilobytes(n int) string { return fmt.Sprintf("%d KB", (n+1023)/1024) }
