package templates

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/render"
)

func checkName(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return fault.MissingField("name")
	case utf8.RuneCountInString(name) > MaxName || hasControl(name):
		return fault.Invalidf("name", "The `name` field must have at most %d characters and no control characters.", MaxName)
	}
	return nil
}

func hasControl(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func checkAlias(alias string) error {
	switch {
	case alias == "":
		return nil
	case !isAlias(alias):
		return fault.Invalidf("alias", "The `alias` field must have 1 to %d characters, each an ASCII letter, a digit, an "+
			"underscore or a dash.", maxAlias)
	case id.Valid(alias):
		return fault.Invalidf("alias", "The `alias` field must not look like an id.")
	}
	return nil
}

func isAlias(text string) bool {
	return len(text) > 0 && len(text) <= maxAlias &&
		!strings.ContainsFunc(text, func(r rune) bool { return notKeyRune(r) && r != '-' })
}

// check checks whether a version's texts may be stored. Rules that depend on values are checked when the version is
// rendered. Rules for sending are checked when the version is published.
func (t *Text) check() error {
	if err := checkMailbox("from", t.From, message.ParseFrom); err != nil {
		return err
	}
	if err := checkSubject(t.Subject); err != nil {
		return err
	}
	if len(t.ReplyTo) > maxReplyTo {
		return fault.Invalidf("reply_to", "The `reply_to` field has %d addresses; the limit is %d.", len(t.ReplyTo),
			maxReplyTo)
	}
	for _, address := range t.ReplyTo {
		if address == "" {
			return fault.Invalidf("reply_to", "The `reply_to` field has an empty address.")
		}
		if err := checkMailbox("reply_to", address, message.ParseAddress); err != nil {
			return err
		}
	}
	size, placeholders := 0, 0
	for _, p := range t.textFields() {
		compiled := render.Compile(p.text)
		placeholders += compiled.Placeholders()
		if p.field == "html" || p.field == "text" {
			size += len(p.text)
			if strings.ContainsRune(p.text, 0) {
				return fault.Invalidf(p.field, "The `%s` field must not contain NUL characters.", p.field)
			}
		}
	}
	if size > MaxSize {
		return fault.Invalidf("html", "The `html` and `text` fields have %d bytes in all; the limit is %d.", size, MaxSize)
	}
	if placeholders > MaxPlaceholders {
		return fault.Invalidf("html", "The template has %d placeholders; the limit is %d.", placeholders, MaxPlaceholders)
	}
	return nil
}

// checkMailbox checks an address in a template. An address with placeholders can be parsed only after rendering, so it
// is not parsed here.
func checkMailbox(field, text string, parse func(string) (message.Address, error)) error {
	if text == "" {
		return nil
	}
	if len(text) > maxMailbox {
		return fault.Invalidf(field, "Invalid `%s` field. The address is too long.", field)
	}
	if hasControl(text) {
		return fault.Invalidf(field, "The `%s` field must be UTF-8 text of one line.", field)
	}
	if t := render.Compile(text); !t.Fixed() {
		return nil
	}
	return parseMailbox(field, text, parse)
}

func parseMailbox(field, text string, parse func(string) (message.Address, error)) error {
	if _, err := parse(text); err != nil {
		return fault.Invalidf(field, "Invalid `%s` field: %s. Use `email@example.com` or `Name <email@example.com>`.", field,
			strings.TrimSuffix(err.Error(), ".")).Because(err)
	}
	return nil
}

func checkSubject(subject string) error {
	if len(subject) > maxSubject {
		return fault.Invalidf("subject", "The `subject` field has %d bytes; the limit is %d.", len(subject), maxSubject)
	}
	if strings.ContainsAny(subject, "\r\n\x00") || !utf8.ValidString(subject) {
		return fault.Invalidf("subject", "The `subject` field must be UTF-8 text without line breaks and NUL characters.")
	}
	return nil
}

// checkPublish checks whether a version may be published.
func (v *Version) checkPublish() error {
	if strings.TrimSpace(v.HTML) == "" {
		return fault.Invalidf("html", "The `html` field is empty. Give the template HTML before it is published.")
	}
	for _, p := range v.textFields() {
		if err := content.CheckPlaceholders(p.field, p.text); err != nil {
			return err
		}
		t := render.Compile(p.text)
		for _, name := range t.Names() {
			if !v.isKnownName(name) {
				return fault.Invalidf(p.field, "The `%s` field uses the variable %s, which is not declared. Declare it in "+
					"`variables`, or correct its name.", p.field, name)
			}
		}
	}
	return nil
}

// isKnownName reports whether a placeholder with this name has a value, because the name is reserved, refers to contact
// data, or is a declared variable.
func (v *Version) isKnownName(name string) bool {
	return IsReserved(name) || strings.HasPrefix(name, "contact.") ||
		slices.ContainsFunc(v.Variables, func(d Variable) bool { return d.Key == name })
}
