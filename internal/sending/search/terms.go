package search

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/termindex"
)

// Message is what searches see of an email.
type Message struct {
	ID      string
	Subject string
	From    string   // an address with or without a name
	To      []string // all recipients
	Labels  []Label
}

// Label is an attribute of an email by which the index finds it. A label with an empty text counts as none.
type Label struct {
	Kind termindex.Kind
	Text string
}

// The kinds of labels.
const (
	Key       = termindex.Key // the id of an API key, or of what a name below says
	Domain    = termindex.Domain
	Template  = termindex.Template
	Broadcast = termindex.Broadcast
	Tag       = termindex.Tag // a tag's name with its value
	TagName   = termindex.TagName
)

// addressPattern is a condition on addresses: a whole address, the domain of an address, or the beginning of one.
type addressPattern struct {
	text      string // in lower case; "" for no condition
	host      bool   // the text is a domain
	beginning bool
}

func (p *addressPattern) selects(a address) bool {
	of := a.whole
	if p.host {
		of = a.host
	}
	return of == p.text || p.beginning && strings.HasPrefix(of, p.text)
}

// address is an address of an email as searches compare it.
type address struct {
	whole, host string
	words       []string // of the address and of the display name
}

func readAddress(text string) (a address) {
	parsed, err := message.ParseAddress(text)
	if err != nil { // erased, or a stranger's
		return address{whole: message.FoldCase(text)}
	}
	return address{parsed.Key(), parsed.Domain, termindex.Words(parsed.Name + " " + parsed.Key())}
}

// texts are the texts of an email as searches compare them.
type texts struct {
	subject []string // words
	to      []address
	from    address
}

func (m *Message) texts() texts {
	x := texts{subject: termindex.Words(m.Subject), from: readAddress(m.From)}
	for _, text := range m.To {
		x.to = append(x.to, readAddress(text))
	}
	return x
}

// terms returns the terms of an email in the search index.
func (m *Message) terms() (terms []string) {
	add := func(k termindex.Kind, texts ...string) {
		for _, text := range texts {
			if text != "" {
				terms = append(terms, termindex.Term(k, text))
			}
		}
	}
	x := m.texts()
	add(termindex.SubjectWord, x.subject...)
	for _, a := range x.to {
		add(termindex.RecipientWord, a.words...)
		add(termindex.Recipient, a.whole)
		add(termindex.RecipientHost, a.host)
	}
	add(termindex.SenderWord, x.from.words...)
	add(termindex.Sender, x.from.whole)
	add(termindex.SenderHost, x.from.host)
	for _, l := range m.Labels {
		add(l.Kind, l.Text)
	}
	return terms
}

// Kinds of terms for a text anywhere in an email's subject and addresses.
var (
	wordKinds  = []termindex.Kind{termindex.SubjectWord, termindex.RecipientWord, termindex.SenderWord}
	wholeKinds = []termindex.Kind{termindex.Recipient, termindex.Sender}
	hostKinds  = []termindex.Kind{termindex.RecipientHost, termindex.SenderHost}
)

// patterns returns patterns of terms, all of which a matching email has. Patterns that probably select few emails come
// first.
func (c *Criteria) patterns(labels []Label) (all []termindex.Pattern) {
	add := func(text string, beginning bool, kinds ...termindex.Kind) {
		if text != "" {
			all = append(all, termindex.Pattern{Text: text, Kinds: kinds, Words: beginning})
		}
	}
	address := func(p addressPattern, whole, host []termindex.Kind) {
		if p.host {
			whole = host
		}
		add(p.text, p.beginning, whole...)
	}
	address(c.to, wholeKinds[:1], hostKinds[:1])
	for _, p := range c.anywhere {
		address(p, wholeKinds, hostKinds)
	}
	byLength := func(a, b string) int { return len(b) - len(a) }
	for _, w := range slices.SortedStableFunc(slices.Values(c.words), byLength) {
		add(w, true, wordKinds...)
	}
	for _, w := range slices.SortedStableFunc(slices.Values(c.subject), byLength) {
		add(w, true, termindex.SubjectWord)
	}
	for _, l := range labels {
		add(l.Text, false, l.Kind)
	}
	address(c.from, wholeKinds[1:], hostKinds[1:])
	return all
}

// Select reports whether the texts of an email are those that are searched for. It ignores the id and the time.
func (c *Criteria) Select(m *Message) bool {
	if c.SelectAll() {
		return true
	}
	x := m.texts()
	if c.from.text != "" && !c.from.selects(x.from) || c.to.text != "" && !slices.ContainsFunc(x.to, c.to.selects) {
		return false
	}
	for _, p := range c.anywhere {
		if !p.selects(x.from) && !slices.ContainsFunc(x.to, p.selects) {
			return false
		}
	}
	begins := func(words []string, beginning string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, beginning) })
	}
	for _, w := range c.subject {
		if !begins(x.subject, w) {
			return false
		}
	}
	for _, w := range c.words {
		if !begins(x.subject, w) && !begins(x.from.words, w) &&
			!slices.ContainsFunc(x.to, func(a address) bool { return begins(a.words, w) }) {
			return false
		}
	}
	return true
}
