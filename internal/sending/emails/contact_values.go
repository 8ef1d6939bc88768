package emails

import (
	"strings"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/sending/render"
)

// contactFields maps the placeholders of contact fields that are not properties to the functions that return their
// values. Names in capitals are an older form.
var contactFields = map[string]func(*contacts.Contact) string{
	"FIRST_NAME": firstName, "contact.first_name": firstName,
	"LAST_NAME": lastName, "contact.last_name": lastName,
	"EMAIL": contactAddress, "contact.email": contactAddress,
}

func init() {
	for _, name := range []string{"FIRST_NAME", "LAST_NAME", "EMAIL"} {
		contactFields["POSTRIDER_"+name], contactFields["RESEND_"+name] = contactFields[name], contactFields[name]
	}
}

func firstName(c *contacts.Contact) string      { return c.FirstName }
func lastName(c *contacts.Contact) string       { return c.LastName }
func contactAddress(c *contacts.Contact) string { return c.Address }

// ContactProperty returns the name of the contact property that fills a placeholder in an email to a contact, or "" if
// no property does.
func ContactProperty(placeholder string) string {
	if placeholder == render.UnsubscribeURL || contactFields[placeholder] != nil {
		return ""
	}
	return strings.TrimPrefix(placeholder, "contact.")
}

// ContactValues returns a contact's values for the placeholders. ContactValues omits placeholders for which the contact
// has no value or an empty one, so that their fallbacks are used.
func ContactValues(m *contacts.Member, placeholders []string) render.Values {
	values := make(render.Values, len(placeholders))
	for _, name := range placeholders {
		if of := contactFields[name]; of != nil {
			if text := of(&m.Contact); text != "" {
				values[name] = text
			}
		} else if v, ok := m.Properties[ContactProperty(name)]; ok && v.Text != "" {
			values[name] = v.Text
		}
	}
	return values
}
