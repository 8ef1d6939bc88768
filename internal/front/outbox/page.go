package outbox

import (
	_ "embed"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
)

const (
	pageRows = 50        // emails in the list of the page
	maxShown = 256 << 10 // bytes of a text in the page; the whole text has a link
	maxFrame = 4 << 20   // bytes of HTML that the page shows in a frame
)

//go:embed page.html
var pageHTML string

var outboxPage = web.Page(pageHTML)

// pageData is the content of the page: the list, and the email that the visitor chose.
type pageData struct {
	Filter  url.Values // what selects the emails of the list
	Chips   []chip
	Rows    []row
	Found   int // emails that the filter selects
	All     int // emails in the outbox
	Unread  int
	Said    string
	Newer   string
	Older   string
	Clear   clearForm
	Mail    *mailView // nil if no email is chosen
	Relay   string    // the mail server that gets all emails, or ""
	Done    string    // what the form before has done
	Undo    string    // id of the email that was deleted, or ""
	Sample  string    // a command that sends an email
	Waiting []snippet
	Home    string // address of the list

	ClearHref string // address of the form that deletes the emails of the list
}

// chip is a filter that is set.
type chip struct{ Label, Value, Remove string }

// row is an email in the list.
type row struct {
	capture.Message
	Href     string
	To       string
	More     int // recipients that are not shown
	Chosen   bool
	Level    string // state of the worst check, or "" if there is nothing to say
	Findings int    // checks with that state
}

// clearForm is the form that deletes the emails that the filter selects.
type clearForm struct {
	Open    bool
	Problem string
	Count   int
}

// mailView is the email that the visitor chose.
type mailView struct {
	capture.Message
	From      string
	View      string // desktop, phone, text, html or raw
	Views     []tab
	Fits      bool   // no width was chosen, so the HTML is as wide as the window: on a phone, this is the view phone
	Frame     string // address of the HTML, or "" if it is not shown
	Images    string // address that shows the email with images of other servers, or ""
	TooLarge  bool   // whether the HTML is too large for a frame
	Content   string // text of the views text, html and raw
	Cut       bool   // whether the content is only the beginning
	Whole     string // address of the whole content
	Pane      string // checks, links, headers or files
	Panes     []tab
	Checks    []checkView // what needs a look, then what passed
	Passed    []checkView // further checks that passed
	NoChecks  string      // why there are no checks
	Links     []mailparse.Link
	Headers   []headerWire
	Files     []fileView
	Defects   []string
	Release   *web.Form
	ReleaseTo string // address of the form
	Releasing bool   // whether the form is open
	Failed    *capture.ReleaseError
	Back      string
}

// tab is a link to another view of the same email.
type tab struct {
	Name, Label, Icon, Href string
	Count                   int
	Chosen                  bool
}

// fileView is an attachment.
type fileView struct {
	Name, Type, Href string
	Size             int
}

// pageNames are the query parameters of the page.
var pageNames = append(slices.Clip(filterNames), "q", "after", "view", "pane", "do", "images")

// readPage returns the query parameters of a page. Forms send parameters without a value, which count as left out.
func readPage(r *http.Request) (url.Values, capture.Filter, error) {
	query := r.URL.Query()
	for name, values := range query {
		if len(values) == 1 && strings.TrimSpace(values[0]) == "" {
			query.Del(name)
		}
	}
	short := *r
	short.URL = &url.URL{Path: r.URL.Path, RawQuery: query.Encode()}
	query, err := readQuery(&short, pageNames...)
	if err != nil {
		return nil, capture.Filter{}, err
	}
	f, err := pageFilter(query)
	return query, f, err
}

func pageFilter(query url.Values) (capture.Filter, error) {
	f, err := capture.ParseFilter(query.Get("to"), query.Get("from"), query.Get("subject"), query.Get("since"))
	if err != nil {
		return f, err
	}
	return f.Search(query.Get("q"))
}

// page shows the list, and the email in the path if there is one.
func (s *server) page(w http.ResponseWriter, r *http.Request) error {
	return s.showPage(w, r, http.StatusOK, nil)
}

// showPage is like page. The function change, which may be nil, adds to the page what a form has to say.
func (s *server) showPage(w http.ResponseWriter, r *http.Request, status int, change func(*pageData)) error {
	query, f, err := readPage(r)
	if err != nil {
		return err
	}
	data := pageData{Filter: url.Values{}, Home: Path, Sample: sample(r), Relay: s.Relay}
	if !s.Sends {
		data.Relay = ""
	}
	for _, name := range append(slices.Clip(filterNames), "q") {
		if query.Has(name) {
			data.Filter.Set(name, query.Get(name))
		}
	}
	if captureID := r.PathValue("id"); captureID != "" {
		if data.Mail, err = s.mailView(r, captureID, query); err != nil {
			return err
		}
	}
	if err := s.fillList(r, &data, query, f); err != nil {
		return err
	}
	data.Done, data.Undo = s.done(w, r)
	data.Clear.Open, data.Clear.Count = query.Get("do") == "clear", data.Found
	to := "ann@example.org"
	if data.Mail != nil && len(data.Mail.Recipients) > 0 {
		to = data.Mail.Recipients[0]
	}
	data.Waiting = waitSnippets(r, to)
	if change != nil {
		change(&data)
	}
	title := "Outbox"
	crumbs := web.Crumbs("Dev", Path, title)
	return s.Site.Show(w, r, status, outboxPage, data, crumbs, web.Live(Path+"/events"), web.Tool(), web.Guests())
}

// fillList adds the emails that the filter selects.
func (s *server) fillList(r *http.Request, data *pageData, query url.Values, f capture.Filter) error {
	all, err := s.Outbox.All(r.Context())
	if err != nil {
		return err
	}
	data.All = len(all)
	found := all
	if len(data.Filter) > 0 {
		if found, _, err = s.Outbox.List(r.Context(), f, "", capture.Max); err != nil {
			return err
		}
	}
	data.Found = len(found)
	start := 0
	if after := query.Get("after"); after != "" {
		start = 1 + slices.IndexFunc(found, func(m capture.Message) bool { return m.ID == after })
	}
	for _, m := range all {
		if !m.Read {
			data.Unread++
		}
	}
	end := min(start+pageRows, len(found))
	data.Said = "Nothing found"
	if end > start {
		data.Said = fmt.Sprintf("%d–%d of %s", start+1, end, web.Number(len(found)))
	}
	home := &url.URL{Path: Path, RawQuery: data.Filter.Encode()}
	if start > 0 {
		data.Newer = home.String()
		if start > pageRows {
			data.Newer = web.With(home, "after", found[start-pageRows-1].ID)
		}
	}
	if end < len(found) {
		data.Older = web.With(home, "after", found[end-1].ID)
	}
	data.ClearHref = web.With(home, "do", "clear")
	if data.Home = web.With(home, "after", query.Get("after")); data.Mail != nil {
		data.Mail.Back = data.Home
	}
	for _, name := range filterNames {
		if query.Has(name) {
			data.Chips = append(data.Chips, chip{strings.ToUpper(name[:1]) + name[1:], query.Get(name),
				web.With(home, name, "")})
		}
	}
	for _, m := range found[start:end] {
		at := &url.URL{Path: Path + "/" + m.ID, RawQuery: data.Filter.Encode()}
		x := row{Message: m, Href: web.With(at, "after", query.Get("after"), "view", query.Get("view"), "pane",
			query.Get("pane")), To: "No recipient"}
		if len(m.Recipients) > 0 {
			x.To, x.More = m.Recipients[0], len(m.Recipients)-1
		}
		x.Subject = strings.TrimSpace(m.Subject)
		x.Chosen = data.Mail != nil && data.Mail.ID == m.ID
		data.Rows = append(data.Rows, x)
	}
	s.countFindings(r.Context(), data.Rows)
	return nil
}

// mailView returns an email for the page, and marks it as read.
func (s *server) mailView(r *http.Request, captureID string, query url.Values) (*mailView, error) {
	m, err := s.Outbox.Get(r.Context(), captureID)
	if err != nil {
		return nil, err
	}
	if !m.Read && r.Method == http.MethodGet && r.Header.Get("X-Live") == "" {
		if m, err = s.Outbox.SetRead(r.Context(), m.ID, true); err != nil {
			return nil, err
		}
	}
	own := Path + "/" + m.ID
	m.Subject = strings.TrimSpace(m.Subject)
	v := &mailView{Message: m, From: strings.Join(displays(m.From), ", "), ReleaseTo: own + "/release",
		Releasing: query.Get("do") == "release", Release: s.releaseForm(m)}
	s.addChecks(r.Context(), v)
	p, release, err := s.load(r.Context(), m.ID)
	if err != nil {
		return nil, err
	}
	defer release()
	v.Links, v.Defects = p.Links(), p.Defects
	for _, h := range p.Header {
		v.Headers = append(v.Headers, headerWire{h.Name, shown(h.Value)})
	}
	for i, f := range p.Files {
		name := f.Filename
		if name == "" {
			name = "file without a name"
		}
		v.Files = append(v.Files, fileView{name, f.ContentType, fmt.Sprintf("%s/attachments/%d", own, i), len(f.Content)})
	}
	if err := s.addContent(r, v, p, query); err != nil {
		return nil, err
	}
	v.addTabs(r.URL, query, p.HasHTML)
	return v, nil
}

// addContent adds what the chosen view shows.
func (s *server) addContent(r *http.Request, v *mailView, p *mailparse.Parsed, query url.Values) error {
	own := Path + "/" + v.ID
	if v.View = query.Get("view"); !slices.Contains([]string{"desktop", "phone", "text", "html", "raw"}, v.View) {
		v.View = "desktop"
	}
	if !p.HasHTML && v.View != "raw" {
		v.View = "text"
	}
	text := ""
	switch v.View {
	case "desktop", "phone":
		v.Fits = query.Get("view") != v.View
		html := p.HTML()
		v.TooLarge, v.Whole = len(html) > maxFrame, own+"/html"
		if v.TooLarge {
			return nil
		}
		if v.Frame = own + "/html"; query.Get("images") == "1" {
			v.Frame += "?images=1"
		} else if strings.Contains(html, "http") {
			v.Images = web.With(r.URL, "images", "1")
		}
		return nil
	case "text":
		text, v.Whole = p.Text(), own
	case "html":
		text, v.Whole = p.HTML(), own+"/html"
	case "raw":
		raw, err := s.read(r.Context(), v.ID)
		if err != nil {
			return err
		}
		text, v.Whole = string(raw), own+"/raw"
	}
	v.Cut = len(text) > maxShown
	v.Content = shown(text)
	return nil
}

// shown returns at most maxShown bytes of a text, as valid UTF-8.
func shown(text string) string {
	if len(text) > maxShown {
		n := maxShown
		for n > maxShown-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// addTabs adds the links to other views of the email.
func (v *mailView) addTabs(u *url.URL, query url.Values, html bool) {
	add := func(to *[]tab, parameter, chosen, name, label, icon string, n int) {
		*to = append(*to, tab{Name: name, Label: label, Icon: icon, Count: n, Chosen: name == chosen,
			Href: web.With(u, parameter, name, "do", "", "images", "")})
	}
	if html {
		add(&v.Views, "view", v.View, "desktop", "Desktop", "desktop", 0)
		add(&v.Views, "view", v.View, "phone", "Phone", "phone", 0)
	}
	add(&v.Views, "view", v.View, "text", "Text", "", 0)
	if html {
		add(&v.Views, "view", v.View, "html", "HTML", "", 0)
	}
	add(&v.Views, "view", v.View, "raw", "Raw", "", 0)
	if v.Pane = query.Get("pane"); !slices.Contains([]string{"links", "headers", "files"}, v.Pane) {
		v.Pane = "checks"
	}
	found := 0
	for _, c := range v.Checks {
		if c.Level == "failed" || c.Level == "warning" {
			found++
		}
	}
	add(&v.Panes, "pane", v.Pane, "checks", "Checks", "", found)
	add(&v.Panes, "pane", v.Pane, "links", "Links", "", len(v.Links))
	add(&v.Panes, "pane", v.Pane, "headers", "Headers", "", 0)
	add(&v.Panes, "pane", v.Pane, "files", "Files", "", len(v.Files))
}
