package dashboard

import (
	"bufio"
	"io"
	"net/http"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/sending/emails"
)

// mailMax is the maximum size of HTML that is shown in a frame, in bytes.
const mailMax = 4 << 20

// showHTML writes mail for a frame.
func (c *call) showHTML(html string) error {
	web.MailHeaders(c.w.Header(), c.Site.MayLoadImages(c.r, c.id()) != "")
	if len(html) > mailMax {
		html = tooLarge(int64(len(html)))
	}
	io.WriteString(c.w, html)
	return nil
}

// tooLarge returns what a frame shows instead of HTML of the given size.
func tooLarge(size int64) string {
	return "<p>The HTML of this email has " + web.Size(size) + ", which is too large to be shown. Download it " +
		"instead.</p>"
}

// emailHTML shows the HTML of a sent email in a frame or, with the parameter download, responds with it as a file.
func (c *call) emailHTML() error {
	e, size, err := c.Emails.GetWithin(c.ctx(), c.team.TeamID, c.id(), mailMax)
	if err != nil {
		return err
	}
	if e.HTML == nil {
		return fault.NotFoundf("This email has no HTML.")
	}
	size = max(size, int64(len(*e.HTML))) // the size does not include shared content
	if c.r.URL.Query().Get("download") == "1" {
		return c.downloadHTML(&e, size)
	}
	if size > mailMax {
		return c.showHTML(tooLarge(size))
	}
	return c.showWithImages(&e)
}

// showWithImages writes the HTML of a sent email for a frame, with its inline images. It reserves memory for the
// images, and writes the HTML as it encodes them.
func (c *call) showWithImages(e *emails.Email) error {
	images, memory, err := c.Emails.InlineImages(c.ctx(), e)
	if err != nil {
		return err
	}
	if len(images) == 0 {
		return c.showHTML(*e.HTML)
	}
	release, err := c.ReserveMemory(c.ctx(), c.team.TeamID, memory)
	if err != nil {
		return err
	}
	defer release()
	files, err := c.Emails.ReadInline(c.ctx(), e, images)
	if err != nil {
		return err
	}
	web.MailHeaders(c.w.Header(), c.Site.MayLoadImages(c.r, c.id()) != "")
	if c.r.Method == http.MethodHead {
		return nil
	}
	p := c.paced()
	w := bufio.NewWriterSize(p, 256<<10)
	if err := mailparse.WriteWithImages(w, *e.HTML, files, 2*emails.InlineImagesSize); err != nil || w.Flush() != nil ||
		p.flush() != nil {
		panic(http.ErrAbortHandler) // the header is sent, so the browser must see that the email is incomplete
	}
	return nil
}

// downloadHTML responds with the HTML of an email whose bodies have the given size. The bodies were read if they are
// not larger than mailMax.
func (c *call) downloadHTML(e *emails.Email, size int64) error {
	if size > mailMax {
		release, err := c.ReserveMemory(c.ctx(), c.team.TeamID, 2*size)
		if err != nil {
			return err
		}
		defer release()
		if *e, err = c.Emails.Get(c.ctx(), c.team.TeamID, e.ID); err != nil {
			return err
		}
		if e.HTML == nil { // deleted since it was measured
			return fault.NotFoundf("This email has no HTML.")
		}
	}
	h := c.w.Header()
	web.FileHeaders(h)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="`+e.ID+`.html"`)
	return c.write([]byte(*e.HTML))
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
