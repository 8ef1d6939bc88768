package emails

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/termindex"
)

// MaxQuery is the maximum length of the texts of a [Filter], in bytes.
const MaxQuery = 500

// maxQueryWords is the maximum number of words in a search.
const maxQueryWords = 16

// Filter selects sent emails. Empty fields select all emails.
type Filter struct {
	// Query is an email's id, or texts separated by spaces. Each text is the beginning of an address, a domain after an @,
	// or the beginnings of words in the subject or in an address.
	Query string

	To      string // an address or a domain among the recipients
	From    string // the sender's address or domain
	Subject string // beginnings of words in the subject

	Status      []string // names of states; an email has one of them
	TagName     string
	TagValue    string // "" for any value
	DomainID    string
	KeyID       string
	TemplateID  string
	BroadcastID string

	CreatedAfter, CreatedBefore time.Time // the span includes the first time, but not the second one
}

// Empty reports whether the filter selects all emails.
func (f *Filter) Empty() bool {
	return f.Query+f.To+f.From+f.Subject+f.TagName+f.TagValue+f.DomainID+f.KeyID+f.TemplateID+f.BroadcastID == "" &&
		len(f.Status) == 0 && f.CreatedAfter.IsZero() && f.CreatedBefore.IsZero()
}

// addressPattern is a condition on addresses: a whole address, the domain of an address, or the beginning of one.
type addressPattern struct {
	text      string // in lower case; "" for no condition
	host      bool   // the text is a domain
	beginning bool
}

func (p *addressPattern) selects(a indexedAddress) bool {
	of := a.whole
	if p.host {
		of = a.host
	}
	return of == p.text || p.beginning && strings.HasPrefix(of, p.text)
}

// criteria is a checked filter.
type criteria struct {
	Filter
	id       string   // the only email, or ""
	words    []string // beginnings of words in the subject or an address
	anywhere []addressPattern
	subject  []string
	to, from addressPattern
	states   []int64
}

// check returns a filter in the form that searches use, or a fault that names the field.
func (f Filter) check() (c criteria, err error) {
	c.Filter = f
	for _, x := range []struct{ name, text string }{{"q", f.Query}, {"to", f.To}, {"from", f.From},
		{"subject", f.Subject}, {"tag", f.TagName + f.TagValue}} {
		if len(x.text) > MaxQuery {
			return c, fault.Invalidf(x.name, "The `%s` parameter is longer than %d bytes.", x.name, MaxQuery)
		}
	}
	for _, x := range []struct {
		name string
		id   *string
	}{{"domain_id", &c.DomainID}, {"api_key_id", &c.KeyID}, {"template_id", &c.TemplateID},
		{"broadcast_id", &c.BroadcastID}} {
		if *x.id = strings.ToLower(*x.id); *x.id != "" && !id.Valid(*x.id) {
			return c, fault.Invalidf(x.name, "The `%s` parameter must be a valid UUID.", x.name)
		}
	}
	for _, name := range f.Status {
		if rank[State(name)] == 0 {
			return c, fault.Invalidf("status", "The `status` parameter has %q, which is no state of emails.", name)
		}
		c.states = append(c.states, int64(states.Number(State(name))))
	}
	if f.TagName == "" && f.TagValue != "" {
		return c, fault.Invalidf("tag", "The `tag` parameter must be a name, or a name and a value with a colon between.")
	}
	if c.to, err = parseAddressPattern("to", f.To); err != nil {
		return c, err
	}
	if c.from, err = parseAddressPattern("from", f.From); err != nil {
		return c, err
	}
	if f.Subject != "" {
		if c.subject, err = queryWords("subject", f.Subject); err != nil {
			return c, err
		}
	}
	if !f.CreatedAfter.IsZero() && !f.CreatedBefore.IsZero() && !f.CreatedAfter.Before(f.CreatedBefore) {
		return c, fault.Invalidf("created_after", "The `created_after` parameter must be before `created_before`.")
	}
	return c, c.readQuery()
}

func parseAddressPattern(name, text string) (p addressPattern, err error) {
	if text == "" {
		return p, nil
	}
	p.text = strings.TrimSpace(text)
	if local, _, ok := strings.Cut(p.text, "@"); !ok || local == "" {
		p.host, p.text = true, strings.TrimPrefix(p.text, "@")
		if a, err := message.ParseAddress("a@" + p.text); err == nil {
			p.text = a.Domain
			return p, nil
		}
	} else if a, err := message.ParseAddress(p.text); err == nil {
		p.text = a.Key()
		return p, nil
	}
	return p, fault.Invalidf(name, "The `%s` parameter must be an email address or a domain.", name)
}

// queryWords returns the words of a text for which a search is made.
func queryWords(name, text string) ([]string, error) {
	words := termindex.Words(text)
	slices.Sort(words)
	words = slices.Compact(words)
	if len(words) == 0 {
		return nil, fault.Invalidf(name, "The `%s` parameter has no letters or digits to search for.", name)
	}
	if len(words) > maxQueryWords {
		return nil, fault.Invalidf(name, "The `%s` parameter has more than %d words.", name, maxQueryWords)
	}
	return words, nil
}

// readQuery reads the field Query.
func (c *criteria) readQuery() (err error) {
	text := strings.TrimSpace(c.Query)
	if c.Query == "" {
		return nil
	}
	// A Message-ID may begin with the id of its email.
	if whole, _, _ := strings.Cut(strings.Trim(text, "<>"), "@"); id.Valid(whole) {
		c.id = strings.ToLower(whole)
		return nil
	}
	var rest []string
	for token := range strings.FieldsSeq(text) {
		token = strings.Trim(token, "<>,;\"")
		local, host, ok := strings.Cut(token, "@")
		switch {
		case !ok || local == "" && host == "":
			rest = append(rest, token)
		case local == "":
			c.anywhere = append(c.anywhere, addressPattern{message.FoldCase(host), true, true})
		default:
			c.anywhere = append(c.anywhere, addressPattern{message.FoldCase(token), false, true})
		}
	}
	if len(c.anywhere) > maxQueryWords {
		return fault.Invalidf("q", "The `q` parameter has more than %d addresses.", maxQueryWords)
	}
	if len(c.anywhere) > 0 && len(termindex.Words(strings.Join(rest, " "))) == 0 {
		return nil
	}
	c.words, err = queryWords("q", strings.Join(rest, " "))
	return err
}

// searches reports whether the filter has texts that are searched for.
func (c *criteria) searches() bool { return len(c.words)+len(c.anywhere)+len(c.subject) > 0 }

// exact reports whether the conditions of [criteria.where] are all conditions of the filter.
func (c *criteria) exact() bool {
	return !c.searches() && c.to.text == "" && c.from.text == "" && c.TagName == "" && c.id == ""
}

// where returns conditions on the columns of emails, and appends their arguments to args.
func (c *criteria) where(args []any, asID func(string) any) (string, []any) {
	text := ""
	add := func(condition string, arg any) {
		args = append(args, arg)
		text += fmt.Sprintf(" AND "+condition, len(args))
	}
	if len(c.states) > 0 {
		add("e.last_event = ANY($%d)", c.states)
	}
	for _, x := range []struct{ column, id string }{{"domain_id", c.DomainID}, {"actor_id", c.KeyID},
		{"template_id", c.TemplateID}, {"broadcast_id", c.BroadcastID}, {"id", c.id}} {
		if x.id != "" {
			add("e."+x.column+" = $%d", asID(x.id))
		}
	}
	if !c.CreatedAfter.IsZero() {
		add("e.created_at >= $%d", c.CreatedAfter.UnixMicro())
	}
	if !c.CreatedBefore.IsZero() {
		add("e.created_at < $%d", c.CreatedBefore.UnixMicro())
	}
	return text, args
}

// Kinds of terms for a text anywhere in an email's subject and addresses.
var (
	wordKinds  = []termindex.Kind{termindex.SubjectWord, termindex.RecipientWord, termindex.SenderWord}
	wholeKinds = []termindex.Kind{termindex.Recipient, termindex.Sender}
	hostKinds  = []termindex.Kind{termindex.RecipientHost, termindex.SenderHost}
)

// patterns returns patterns of terms, all of which a matching email has. Patterns that probably select few emails come
// first.
func (c *criteria) patterns() (all []termindex.Pattern) {
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
	if c.TagName != "" && c.TagValue != "" {
		add(tagText(c.TagName, c.TagValue), false, termindex.Tag)
	} else {
		add(c.TagName, false, termindex.TagName)
	}
	add(c.BroadcastID, false, termindex.Broadcast)
	add(c.TemplateID, false, termindex.Template)
	address(c.from, wholeKinds[1:], hostKinds[1:])
	add(c.KeyID, false, termindex.Key)
	add(c.DomainID, false, termindex.Domain)
	return all
}

func tagText(name, value string) string { return name + "\x00" + value }

// indexedAddress is an address of an email as searches see it.
type indexedAddress struct {
	whole, host string
	words       []string // of the address and of the display name
}

func indexAddress(text string) (a indexedAddress) {
	parsed, err := message.ParseAddress(text)
	if err != nil { // erased
		return indexedAddress{whole: message.FoldCase(text)}
	}
	return indexedAddress{parsed.Key(), parsed.Domain, termindex.Words(parsed.Name + " " + parsed.Key())}
}

// indexedEmail is what searches see of an email.
type indexedEmail struct {
	subject []string // words
	to      []indexedAddress
	from    indexedAddress
}

func indexEmail(e *Email) indexedEmail {
	x := indexedEmail{subject: termindex.Words(e.Subject), from: indexAddress(e.From)}
	for _, list := range [][]string{e.To, e.Cc, e.Bcc} {
		for _, text := range list {
			x.to = append(x.to, indexAddress(text))
		}
	}
	return x
}

// termsOf returns the terms of an email in the search index.
func termsOf(e *Email) (terms []string) {
	add := func(k termindex.Kind, texts ...string) {
		for _, text := range texts {
			if text != "" {
				terms = append(terms, termindex.Term(k, text))
			}
		}
	}
	x := indexEmail(e)
	add(termindex.SubjectWord, x.subject...)
	for _, a := range x.to {
		add(termindex.RecipientWord, a.words...)
		add(termindex.Recipient, a.whole)
		add(termindex.RecipientHost, a.host)
	}
	add(termindex.SenderWord, x.from.words...)
	add(termindex.Sender, x.from.whole)
	add(termindex.SenderHost, x.from.host)
	for _, t := range e.Tags {
		add(termindex.TagName, t.Name)
		add(termindex.Tag, tagText(t.Name, t.Value))
	}
	add(termindex.Key, e.Actor.ID)
	add(termindex.Domain, e.DomainID)
	add(termindex.Template, e.TemplateID)
	add(termindex.Broadcast, e.BroadcastID)
	return terms
}

// selects reports whether an email meets those conditions that [criteria.where] has not.
func (c *criteria) selects(e *Email) bool {
	if c.exact() {
		return true
	}
	if c.TagName != "" && !slices.ContainsFunc(e.Tags, func(t Tag) bool {
		return t.Name == c.TagName && (c.TagValue == "" || t.Value == c.TagValue)
	}) {
		return false
	}
	x := indexEmail(e)
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
			!slices.ContainsFunc(x.to, func(a indexedAddress) bool { return begins(a.words, w) }) {
			return false
		}
	}
	return true
}
