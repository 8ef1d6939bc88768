package dashboard

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Sizes of what the page of an email contains, in bytes.
const (
	bodiesShown  = 2 << 20   // text and HTML in all; larger ones can only be downloaded
	messageShown = 512 << 10 // the raw message, whose bodies and attachments are each left out if they are larger
)

// contentView is what the page shows of an email's content: one view, which the parameter view names.
type contentView struct {
	View     string
	Tabs     []contentTab
	Missing  string // says why the view cannot be shown; else ""
	Download string // the address of a file with what is missing, or ""

	// These fields are for the preview.
	Fits                               bool // no width was chosen, so it is as wide as the window
	Phone, Dark                        bool
	Images                             string // see [web.Site.MayLoadImages]
	Desktop, ToPhone, ToImages, ToDark string // addresses of the preview with other settings

	Text     string
	TextMade bool // whether Postrider made the text from the HTML
	Source   string

	// These fields are for the header and for the message; see [emails.Recomposed].
	Headers            []message.Field
	Raw                string
	Submitted, Partial bool
	Forwarded          bool // whether a rule forwarded the email, so that its content is not stored as text and HTML
}

// contentTab is a link to a view of the content.
type contentTab struct {
	Label, Icon, Href string
	Current           bool
	Count             int
}

// contentViews are the views in the order of their tabs.
var contentViews = []struct{ view, label, icon string }{
	{"preview", "Preview", "eye"}, {"text", "Text", "text"}, {"source", "Source", "code"}, {"headers", "Headers", "logs"},
	{"raw", "Raw message", "mail"}, {"attachments", "Attachments", "clip"}}

const (
	contentGone = "The content of this email is not kept any more. Its events and the explanation of its delivery are " +
		"kept longer."
	noHTML = "This email has no HTML. Its text is all that recipients see."
)

// content sets the view of the content that the address names. The bodies of e have the given size in all, and were
// not read if they are too large to be shown.
func (c *call) content(data *emailView, e *emails.Email, size int64) error {
	v := &data.Content
	gone := e.HTML == nil && e.Text == nil && !e.Submitted()
	v.View = c.r.URL.Query().Get("view")
	if !isContentView(v.View) {
		v.View = "preview"
		if e.HTML == nil && !gone {
			v.View = "text"
		}
	}
	for _, x := range contentViews {
		t := contentTab{Label: x.label, Icon: x.icon, Current: x.view == v.View, Href: c.contentHref("view", x.view)}
		if x.view == "attachments" {
			t.Count = len(data.Files)
		}
		v.Tabs = append(v.Tabs, t)
	}
	v.Forwarded = data.Forwarded
	switch large := size > bodiesShown; {
	case v.View == "attachments":
	case gone:
		v.Missing = contentGone
	case v.Forwarded && v.View != "headers" && v.View != "raw":
		v.Missing = "A rule forwarded this email as it was received. “Raw message” shows it, and the page of the received " +
			"email shows its text."
	case v.View == "preview":
		c.preview(v, e)
	case v.View == "headers" || v.View == "raw":
		return c.recomposed(v, e)
	case v.View == "source" && e.HTML == nil:
		v.Missing = noHTML
	case large:
		v.Missing = "The text and the HTML of this email have " + web.Size(size) + ", which is too large for this page. " +
			"Download the file to read all of it."
		v.Download = emailPath(e.ID) + "/raw"
		if v.View == "source" {
			v.Download = emailPath(e.ID) + "/html?download=1"
		}
	case v.View == "source":
		v.Source = *e.HTML
	case e.Text != nil:
		v.Text = *e.Text
	case e.HTML != nil:
		v.Text, v.TextMade = htmltext.FromHTML(*e.HTML), true
	}
	return nil
}

func isContentView(view string) bool {
	for _, x := range contentViews {
		if x.view == view {
			return true
		}
	}
	return false
}

// contentHref returns the address of the page with some query parameters replaced, at the place of the content.
func (c *call) contentHref(pairs ...string) string { return web.With(c.r.URL, pairs...) + "#content" }

// preview sets the settings of the frame that shows the HTML.
func (c *call) preview(v *contentView, e *emails.Email) {
	if e.HTML == nil {
		v.Missing = noHTML
		return
	}
	q := c.r.URL.Query()
	v.Phone, v.Fits = q.Get("width") == "phone", !q.Has("width")
	v.Dark, v.Images = q.Get("dark") == "1", c.Site.MayLoadImages(c.r, e.ID)
	v.Desktop, v.ToPhone = c.contentHref("width", "desktop"), c.contentHref("width", "phone")
	v.ToImages, v.ToDark = c.contentHref("images", ""), c.contentHref("dark", flag(!v.Dark))
	if v.Images == "" {
		v.ToImages = c.contentHref("images", c.Site.ImagesToken(c.r, e.ID))
	}
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return ""
}

// recomposed sets the message, or its header fields, as the email is composed from what is stored now.
func (c *call) recomposed(v *contentView, e *emails.Email) error {
	m, err := c.Emails.Recompose(c.ctx(), c.team.TeamID, e.ID, messageShown)
	if text, ok := absent(err); ok {
		v.Missing = text
		return nil
	}
	if err != nil {
		return err
	}
	v.Submitted, v.Partial = m.Submitted, m.Partial
	if v.View == "headers" {
		v.Headers = mailparse.ParseHeader(m.Raw)
		return nil
	}
	if len(m.Raw) > messageShown { // encoding makes bodies and attachments longer
		m.Raw, v.Partial = m.Raw[:messageShown], true
	}
	v.Raw = strings.ReplaceAll(strings.ToValidUTF8(string(m.Raw), "\ufffd"), "\r\n", "\n")
	return nil
}

// absent reports whether an error means that a message cannot be shown to anyone, and returns its sentence.
func absent(err error) (string, bool) {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Kind != fault.NotFound && e.Kind != fault.Restricted && e.Kind != fault.Invalid {
		return "", false
	}
	return e.Message, true
}

// emailRaw responds with the message, as a file or, with the parameter as=text, as text. Neither can run anything in a
// browser.
func (c *call) emailRaw() error {
	size, err := c.Emails.Size(c.ctx(), c.team.TeamID, c.id())
	if errors.Is(err, emails.ErrGone) {
		return fault.NotFoundf("Email not found")
	}
	if err != nil {
		return err
	}
	release, err := c.ReserveMemory(c.ctx(), c.team.TeamID, size)
	if err != nil {
		return err
	}
	defer release()
	m, err := c.Emails.Recompose(c.ctx(), c.team.TeamID, c.id(), -1)
	if err != nil {
		return err
	}
	h := c.w.Header()
	web.FileHeaders(h)
	h.Set("Content-Type", "message/rfc822")
	h.Set("Content-Disposition", `attachment; filename="`+c.id()+`.eml"`)
	if c.r.URL.Query().Get("as") == "text" {
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Content-Disposition", "inline")
	}
	return c.write(m.Raw)
}

// write responds with a file of a known size, which the browser must receive at a minimum rate.
func (c *call) write(file []byte) error {
	c.w.Header().Set("Content-Length", strconv.Itoa(len(file)))
	if c.r.Method == http.MethodHead {
		return nil
	}
	p := c.paced()
	if _, err := p.Write(file); err != nil || p.flush() != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}
