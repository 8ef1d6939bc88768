package dashboard

import (
	"errors"
	"net/http"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
)

// refused reports whether an error is a fault that the visitor can correct, and returns its sentence in the words of
// pages.
func refused(err error) (string, bool) {
	text, ok := refusedAsIs(err)
	return web.InWords("", text, nil), ok
}

// refusedAsIs is like refused, but the sentence names fields as the API does.
func refusedAsIs(err error) (string, bool) {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Kind == fault.Internal || e.Kind == fault.NotFound || e.Kind == fault.Unavailable {
		return "", false
	}
	return e.Message, true
}

func (c *call) cancelEmail() error {
	if err := c.Emails.Cancel(c.ctx(), c.team.TeamID, c.id()); err != nil {
		if text, ok := refused(err); ok {
			return c.emailPage(http.StatusUnprocessableEntity, text, "")
		}
		return err
	}
	return c.redirect(emailPath(c.id()), "The email is canceled.")
}

func (c *call) rescheduleEmail() error {
	when := c.form.Get("scheduled_at")
	if err := c.Emails.Reschedule(c.ctx(), c.team.TeamID, c.id(), when); err != nil {
		if text, ok := refusedAsIs(err); ok {
			return c.emailPage(http.StatusUnprocessableEntity, web.InWords(fieldOf(err), text, nil), when)
		}
		return err
	}
	return c.redirect(emailPath(c.id()), "The email has a new time.")
}

func (c *call) shareEmail() error {
	link, err := c.Emails.Share(c.ctx(), c.team.TeamID, c.id(), "")
	if err != nil {
		if text, ok := refused(err); ok {
			return c.emailPage(http.StatusUnprocessableEntity, text, "")
		}
		return err
	}
	return c.emailPage(http.StatusOK, "", "", link)
}
