package dashboard

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/savedfilters"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/search"
)

var (
	receivingPage = pageOf("receiving.html", "saved.html")
	receivedPage  = pageOf("received.html", "fields.html", "beside.html")
)

// receivedList is the content of the page that lists the emails that the team received.
type receivedList struct {
	base
	Filter  receivedFilter
	Rows    []receivedRow
	Pager   pager
	Back    time.Time // how far the search went back, if its time was over; else zero
	First   bool
	Places  []string // where the team receives emails, if it has received none yet
	Saved   savedView
	Problem string // why the search was refused; else ""
}

// receivedFilter is the filter as the visitor set it.
type receivedFilter struct {
	Query, From, To, In    string
	Thread                 string // the id of the only conversation that is shown, or ""
	SpanLabel              string
	Set                    int // how many filters are set
	Clear                  string
	NoThread, NoIn, NoFrom string // addresses of the list without that filter
	NoTo                   string
}

// Spans returns the choices of time.
func (f receivedFilter) Spans() any { return spanChoices(f.In) }

// receivedRow is a row of the list.
type receivedRow struct {
	ID, From, To, Subject string
	Href                  string // its page, which knows the filter of the list
	More, Files           int
	At                    time.Time
}

func (c *call) receiving() error {
	p, err := c.page(rowsShown)
	if err != nil {
		return err
	}
	data := receivedList{base: c.base()}
	if data.Saved, err = c.saved(savedfilters.Receiving); err != nil {
		return err
	}
	f, shown, err := c.receivedFilter()
	if err != nil {
		return err
	}
	data.Filter = shown
	var found receiving.Found
	if f.Query == (search.Query{}) {
		found.Items, found.HasMore, err = c.Receiving.List(c.ctx(), c.team.TeamID, f.ThreadID, p)
	} else {
		found, err = c.Receiving.Search(c.ctx(), c.team.TeamID, f, p)
	}
	status := http.StatusOK
	if text, ok := searchProblem(err); ok {
		data.Problem, status, err = text, http.StatusUnprocessableEntity, nil
	}
	if err != nil {
		return err
	}
	data.Back = found.SearchedBackTo
	var ids []string
	for i := range found.Items {
		row := receivedRowOf(&found.Items[i])
		row.Href += listQuery(c.r.URL, receivedFilters)
		data.Rows, ids = append(data.Rows, row), append(ids, row.ID)
	}
	data.Pager = c.searchPager(p, ids, found.HasMore, found.Next)
	if data.First = len(ids) == 0 && p == (page.Page{Limit: rowsShown}) && shown.Set == 0; data.First {
		if data.Places, err = c.places(); err != nil {
			return err
		}
	}
	return c.show(status, receivingPage, data, web.Crumbs(c.team.TeamName, "/app/emails", "Receiving"),
		web.Live("/app/live"), web.HTMX())
}

// receivedFilter reads the filter from the request's query.
func (c *call) receivedFilter() (f receiving.Filter, shown receivedFilter, err error) {
	q := c.r.URL.Query()
	shown = receivedFilter{Query: strings.TrimSpace(q.Get("q")), From: q.Get("from"), To: q.Get("to"), In: q.Get("in"),
		Thread: q.Get("thread"), Clear: c.r.URL.Path}
	f.Query = search.Query{Text: shown.Query, From: shown.From, To: shown.To}
	if f.CreatedAfter, f.CreatedBefore, shown.SpanLabel, err = spanOf(shown.In); err != nil {
		return f, shown, err
	}
	if shown.Thread != "" {
		f.ThreadID = validID(shown.Thread)
	}
	for _, text := range []string{shown.Query, shown.From, shown.To, shown.SpanLabel, shown.Thread} {
		if text != "" {
			shown.Set++
		}
	}
	without := func(name string) string { return web.With(c.r.URL, name, "", "after", "", "before", "") }
	shown.NoThread, shown.NoIn, shown.NoFrom, shown.NoTo = without("thread"), without("in"), without("from"), without("to")
	return f, shown, nil
}

func receivedRowOf(e *receiving.Email) receivedRow {
	row := receivedRow{ID: e.ID, Href: receivedPath(e.ID), From: e.From, Subject: e.Subject, Files: len(e.Files),
		At: e.CreatedAt}
	to := e.ReceivedFor
	if len(to) == 0 {
		to = e.To
	}
	if len(to) > 0 {
		row.To, row.More = to[0], len(to)-1
	}
	return row
}

// places returns the hosts at which the team receives emails.
func (c *call) places() (all []string, err error) {
	if c.actor.Scopes.Has(teams.DomainsRead) {
		some, _, err := c.Domains.List(c.ctx(), c.team.TeamID, page.Page{Limit: choicesShown})
		if err != nil {
			return nil, err
		}
		for _, d := range some {
			if d.MayReceive() {
				all = append(all, d.Name)
			}
		}
	}
	if host := c.Receiving.ManagedHost(c.team.TeamID); host != "" {
		all = append(all, host)
	}
	return all, nil
}

// shownMost is the maximum number of bytes of a text that a page shows. The raw message has all of it.
const shownMost = 256 << 10

// threadShown is the maximum number of emails of a conversation that the page of an email lists.
const threadShown = 20

// receivedView is the content of the page of a received email.
type receivedView struct {
	base
	listLinks
	Email    receiving.Email
	Author   string // the From field with the display name
	HasHTML  bool
	Text     string
	Cut      bool // whether the text or a header field is longer than what is shown
	Headers  []message.Field
	Defects  []string
	Checks   []checkView
	Thread   []receivedRow
	SentID   string // the sent email that began the conversation, or ""
	SentName string
	Images   string // see [web.Site.MayLoadImages]
	ToImages string // address of the page with images
	NoImages string // address of the page without images
	Spam     string
}

// checkView is a result of SPF, DKIM or DMARC.
type checkView struct{ Name, State, Label, Says string }

// receivedContent reads a received email. The caller must close the content.
func (c *call) receivedContent(format string) (receiving.Email, receiving.Content, error) {
	return c.Receiving.Get(c.ctx(), c.team.TeamID, c.id(), format)
}

func (c *call) received() error {
	e, content, err := c.receivedContent(receiving.CID)
	if err != nil {
		return err
	}
	defer content.Close()
	data := receivedView{base: c.base(), Email: e, Author: headerOf(content.Header, "From"), HasHTML: content.HTML != nil,
		Headers: content.Header, Defects: content.Defects, Checks: checksOf(&e),
		Images: c.Site.MayLoadImages(c.r, e.ID), NoImages: web.With(c.r.URL, "images", ""),
		ToImages:  web.With(c.r.URL, "images", c.Site.ImagesToken(c.r, e.ID)),
		listLinks: c.linksOf("/app/receiving", receivedPath(e.ID), receivedFilters)}
	if data.Author == "" {
		data.Author = e.From
	}
	if content.Text != nil {
		data.Text = cut(*content.Text, &data.Cut)
	}
	for i := range data.Headers {
		data.Headers[i].Value = cut(data.Headers[i].Value, &data.Cut)
	}
	if e.Spam != nil {
		data.Spam = e.Spam.Action
	}
	all, _, err := c.Receiving.List(c.ctx(), c.team.TeamID, e.ThreadID, page.Page{Limit: threadShown})
	if err != nil {
		return err
	}
	for i := range all {
		data.Thread = append(data.Thread, receivedRowOf(&all[i]))
	}
	if err := c.addSent(&data); err != nil {
		return err
	}
	title := visible.Show(e.Subject)
	if title == "" {
		title = "No subject"
	}
	return c.show(http.StatusOK, receivedPage, data, web.Crumbs("Receiving", data.Back, title))
}

// addSent adds the sent email that began the conversation, whose id is that of the conversation.
func (c *call) addSent(data *receivedView) error {
	if !c.actor.Scopes.Has(teams.EmailsRead) {
		return nil
	}
	sent, _, err := c.Emails.GetWithin(c.ctx(), c.team.TeamID, data.Email.ThreadID, 0) // only the subject is shown
	if err != nil {
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		return err
	}
	if data.SentID, data.SentName = sent.ID, sent.Subject; data.SentName == "" {
		data.SentName = "No subject"
	}
	return nil
}

// cut shortens a text to what a page shows.
func cut(text string, was *bool) string {
	if len(text) > shownMost {
		*was = true
		return strings.ToValidUTF8(text[:shownMost], "")
	}
	return text
}

func headerOf(all []message.Field, name string) string {
	for _, f := range all {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// checksOf returns the results of authentication.
func checksOf(e *receiving.Email) (all []checkView) {
	r := e.Authentication
	if r == nil {
		return nil
	}
	add := func(name, result, domain, detail string) {
		v := checkView{Name: name, State: "unknown", Label: result, Says: domain}
		switch result {
		case "pass":
			v.State, v.Label = "passed", "Passed"
		case "fail", "permerror":
			v.State, v.Label = "failed", "Failed"
		case "softfail", "temperror", "policy":
			v.State = "warning"
		case "none", "neutral":
			v.Label = "None"
		}
		if detail != "" && result != "pass" {
			v.Says = strings.TrimSpace(v.Says + " " + detail)
		}
		all = append(all, v)
	}
	add("SPF", r.SPF.Result, r.SPF.Domain, r.SPF.Detail)
	for _, v := range r.DKIM {
		add("DKIM", v.Result, v.Domain, v.Detail)
	}
	add("DMARC", r.DMARC.Result, r.DMARC.Domain, r.DMARC.Detail)
	return all
}

// receivedHTML shows the HTML of a received email in a frame, with inline images. It writes the images as it encodes
// them, so that the request needs no memory besides that of the content.
func (c *call) receivedHTML() error {
	_, content, err := c.receivedContent(receiving.CID)
	if err != nil {
		return err
	}
	defer content.Close()
	switch {
	case content.HTML == nil:
		return fault.NotFoundf("This email has no HTML.")
	case len(*content.HTML) > mailMax:
		return c.showHTML(tooLarge(int64(len(*content.HTML))))
	}
	web.MailHeaders(c.w.Header(), c.Site.MayLoadImages(c.r, c.id()) != "")
	if c.r.Method == http.MethodHead {
		return nil
	}
	p := c.paced()
	w := bufio.NewWriterSize(p, 256<<10)
	if err := content.WriteHTML(w); err != nil || w.Flush() != nil || p.flush() != nil {
		panic(http.ErrAbortHandler) // the header is sent, so the browser must see that the email is incomplete
	}
	return nil
}

// receivedRaw redirects to the download of the raw message.
func (c *call) receivedRaw() error {
	e, content, err := c.receivedContent(receiving.CID) // an email whose message is lost has no download
	if err != nil {
		return err
	}
	content.Close()
	link, _ := c.Receiving.RawURL(e.TeamID, e.ID, c.Now())
	return c.download(link)
}

// receivedFile redirects to the download of an attachment.
func (c *call) receivedFile() error {
	f, err := c.Receiving.File(c.ctx(), c.team.TeamID, c.id(), validID(c.r.PathValue("file")))
	if err != nil {
		return err
	}
	link, _ := c.Receiving.FileURL(c.team.TeamID, c.id(), f.ID, c.Now())
	return c.download(link)
}

func (c *call) download(link string) error {
	c.w.Header().Set("Location", link)
	c.w.WriteHeader(http.StatusSeeOther)
	return nil
}

func receivedPath(id string) string { return "/app/receiving/" + url.PathEscape(id) }
