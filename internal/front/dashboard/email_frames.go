package dashboard

import (
	"fmt"
	"io"
	"net/http"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
)

// mailMax is the maximum size of HTML that is shown in a frame, in bytes.
const mailMax = 4 << 20

// showHTML writes mail for a frame.
func (c *call) showHTML(html string) error {
	web.MailHeaders(c.w.Header(), c.r.URL.Query().Get("images") == "1")
	if len(html) > mailMax {
		html = fmt.Sprintf("<p>The HTML of this email has %d MB, which is too large to be shown. Open its source "+
			"instead.</p>", len(html)>>20)
	}
	io.WriteString(c.w, html)
	return nil
}

// emailHTML shows the HTML of a sent email in a frame.
func (c *call) emailHTML() error {
	e, err := c.Emails.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	if e.HTML == nil {
		return fault.NotFoundf("This email has no HTML.")
	}
	return c.showHTML(*e.HTML)
}

// emailFile redirects to the download of an attachment.
func (c *call) emailFile() error {
	a, err := c.Emails.Attachment(c.ctx(), c.team.TeamID, c.id(), validID(c.r.PathValue("file")))
	if err != nil {
		return err
	}
	link, _ := c.Emails.DownloadURL(&a, c.Now())
	c.w.Header().Set("Location", link)
	c.w.WriteHeader(http.StatusSeeOther)
	return nil
}
