package web

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// A page that cannot be shown because the database or the store of files is away tries again by itself: a script asks
// for the page until the server can show it, and browsers without JavaScript reload it. A form is never submitted
// again by itself, because the visitor may have changed their mind. Instead, the response contains what was typed and
// a button that submits it.

const (
	outageRetry  = 5 // seconds until a page tries again
	outageAgain  = "This page tries again by itself."
	outageStored = "Your form, or a part of it, is stored already."
	outageFields = 200 // values of a form that a page repeats
)

var outagePage = Page(`{{define "title"}}{{.Title}}{{end}}
{{define "head"}}{{if .Reload}}<noscript><meta http-equiv="refresh" content="{{.Seconds}}"></noscript>{{end}}{{end}}
{{define "main"}}<h1>{{.Title}}</h1>
<p class="second" role="status"{{if .Retry}} data-retry="{{.Retry}}" data-seconds="{{.Seconds}}"{{end}}
{{- with .Back}} data-back="{{.}}"{{end}}>{{.Message}}</p>
{{- with .Again}}
<form method="post" action="{{.Action}}">
{{- range .Hidden}}<input type="hidden" name="{{.Name}}" value="{{.Value}}">{{end}}
{{- range .Secrets}}{{template "field" .}}{{end}}
<div class="actions"><button class="b primary">Submit again</button></div></form>
{{- end}}{{end}}`)

// outageView is the content of the page that an outage causes.
type outageView struct {
	Title, Message string
	Retry          string // the address that the script asks for until the server can show it, or ""
	Reload         bool   // whether browsers without JavaScript reload the page
	Seconds        int
	Back           string        // what the script writes instead of loading the page, or ""
	Again          *repeatedForm // the form that could not be carried out, or nil
}

// repeatedForm is a form that the visitor can submit again.
type repeatedForm struct {
	Action  string
	Hidden  []hiddenValue
	Secrets []*Field // fields that the visitor must type again
}

type hiddenValue struct{ Name, Value string }

// secretLabels are the labels of the fields whose values a response never contains.
var secretLabels = map[string]string{"password": "Password", "current": "Current password", "code": "Code"}

// outage responds to a request that a temporary failure has stopped. The page of an outage shows no visitor, because
// looking up the visitor may be the operation that failed.
func (s *Site) outage(w http.ResponseWriter, r *http.Request, e *fault.Error) error {
	away := errors.Is(e, db.ErrUnavailable)
	data := outageView{Title: "Something went wrong", Message: e.Message, Seconds: outageRetry}
	if away {
		data.Title = "The database is away"
	}
	switch {
	case r.Method != http.MethodPost && (away || fault.IsOutage(e)):
		if away {
			data.Message = "The database cannot be reached at present."
		}
		data.Message, data.Reload, data.Retry = data.Message+" "+outageAgain, true, Local(r.URL.RequestURI())
	case r.Method == http.MethodPost:
		stored := stored(r)
		switch {
		case away && stored:
			data.Message, data.Retry = "The database cannot be reached at present. "+outageStored, "/readyz"
			data.Back = "The database can be reached again. Look before you submit the form again."
		case away:
			data.Message, data.Retry = "The database cannot be reached at present, so nothing was changed.", "/readyz"
			data.Back = "The database can be reached again. Submit the form again."
		case stored:
			data.Message += " " + outageStored
		}
		most := int64(formMax)
		if release, ok := s.largeForms.acquire(s.users.BrowserUser(s.Cookie(r, lastCookie))); ok {
			defer release()
			most = largeFormMax
		}
		if data.Again = s.repeated(w, r, most); data.Again == nil {
			data.Message += " This page cannot keep what you typed. Go back to the form."
			if away && !stored { // loading the page of a form again would submit the form
				data.Back = "The database can be reached again. Go back to the form."
			}
			break
		}
		data.Message += " This page keeps what you typed."
		switch {
		case stored:
			data.Message += " Look before you submit it again."
		case away:
			data.Message += " Submit it again in a moment."
		}
	}
	of := layoutData{Data: data}
	o := options{bare: true}
	s.frame(r, &of, &o)
	return s.write(w, r, http.StatusServiceUnavailable, outagePage, of, &o)
}

// stored reports whether a request has changed something.
func stored(r *http.Request) bool {
	v, _ := r.Context().Value(visitKey{}).(*visit)
	return v != nil && v.commits.Any()
}

// repeated returns a request's form of at most the given size for a second try, or nil if the form cannot be read. An
// outage may have stopped the request before its form was read.
func (s *Site) repeated(w http.ResponseWriter, r *http.Request, most int64) *repeatedForm {
	var form url.Values
	if v, _ := r.Context().Value(visitKey{}).(*visit); v != nil && v.form != nil {
		form = v.form
	} else {
		var err error
		if form, err = readForm(w, r, most); err != nil {
			return nil
		}
	}
	again := &repeatedForm{Action: Local(r.URL.RequestURI())}
	names := make([]string, 0, len(form))
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if label := secretLabels[name]; label != "" {
			again.Secrets = append(again.Secrets, &Field{Name: name, Label: label, Type: "password",
				Autocomplete: "off"})
			continue
		}
		for _, value := range form[name] {
			again.Hidden = append(again.Hidden, hiddenValue{name, value})
		}
	}
	if again.Action == "" || len(again.Hidden) > outageFields {
		return nil
	}
	return again
}

// retryAfter sets the header Retry-After of a response with status 503.
func retryAfter(h http.Header) {
	if h.Get("Retry-After") == "" {
		h.Set("Retry-After", strconv.Itoa(outageRetry))
	}
}
