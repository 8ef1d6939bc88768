package search

import (
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/termindex"
)

// MaxQuery is the maximum length of a text of a [Query], in bytes.
const MaxQuery = 500

// maxQueryWords is the maximum number of words in a search.
const maxQueryWords = 16

// Query selects emails by texts and by time. Empty fields select all emails.
type Query struct {
	// Text is an email's id, or texts separated by spaces. Each text is the beginning of an address, a domain after an @,
	// or the beginnings of words in the subject or in an address.
	Text string

	To      string // an address or a domain among the recipients
	From    string // the sender's address or domain
	Subject string // beginnings of words in the subject

	CreatedAfter, CreatedBefore time.Time // the span includes the first time, but not the second one
}

// Criteria is a checked [Query].
type Criteria struct {
	query    Query
	id       string   // the only email, or ""
	words    []string // beginnings of words in the subject or an address
	anywhere []addressPattern
	subject  []string
	to, from addressPattern
}

// Check returns a query in the form that searches use, or an Invalid fault that names the parameter of the API.
func (q Query) Check() (c Criteria, err error) {
	c.query = q
	for _, x := range []struct{ name, text string }{{"q", q.Text}, {"to", q.To}, {"from", q.From},
		{"subject", q.Subject}} {
		if len(x.text) > MaxQuery {
			return c, fault.Invalidf(x.name, "The `%s` parameter is longer than %d bytes.", x.name, MaxQuery)
		}
	}
	if c.to, err = parseAddressPattern("to", q.To); err != nil {
		return c, err
	}
	if c.from, err = parseAddressPattern("from", q.From); err != nil {
		return c, err
	}
	if q.Subject != "" {
		if c.subject, err = queryWords("subject", q.Subject); err != nil {
			return c, err
		}
	}
	if !q.CreatedAfter.IsZero() && !q.CreatedBefore.IsZero() && !q.CreatedAfter.Before(q.CreatedBefore) {
		return c, fault.Invalidf("created_after", "The `created_after` parameter must be before `created_before`.")
	}
	return c, c.readText()
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

// readText reads the field Text of the query.
func (c *Criteria) readText() (err error) {
	text := strings.TrimSpace(c.query.Text)
	if c.query.Text == "" {
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
			text := message.FoldCase(host)
			if a, err := message.ParseAddress("a@" + host); err == nil { // emails have the ASCII form of a domain
				text = a.Domain
			}
			c.anywhere = append(c.anywhere, addressPattern{text, true, true})
		default:
			text := message.FoldCase(token)
			if a, err := message.ParseAddress(token); err == nil {
				text = a.Key()
			}
			c.anywhere = append(c.anywhere, addressPattern{text, false, true})
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

// hasTexts reports whether the criteria have texts that are searched for.
func (c *Criteria) hasTexts() bool { return len(c.words)+len(c.anywhere)+len(c.subject) > 0 }

// SelectAll reports whether the criteria select all emails except for their ids and times.
func (c *Criteria) SelectAll() bool { return !c.hasTexts() && c.to.text == "" && c.from.text == "" }
