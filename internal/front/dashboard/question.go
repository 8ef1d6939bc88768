package dashboard

import (
	"net/http"

	"github.com/postrider/postrider/internal/front/web"
)

var questionPage = pageOf("question.html")

// question is the content of a page that asks before something is done. Its form leads to the address of the page.
type question struct {
	base
	Title   string
	Text    []string
	Form    *web.Form
	Button  string // what is done, as a verb with its object
	Keep    string // the harmless choice
	Back    string // the address of the harmless choice
	Danger  bool
	Confirm string // the text that must be typed in the field confirm, or ""
	Action  string // the address to which the form leads
}

// ask shows a question. The crumbs lead to the page.
func (c *call) ask(status int, q question, crumbs ...string) error {
	q.base, q.Action = c.base(), c.r.URL.Path
	if q.Form == nil {
		q.Form = web.NewForm()
	}
	return c.show(status, questionPage, q, web.Crumbs(append(crumbs, q.Button)...), web.Class("form"))
}

// confirmField returns the field for a typed confirmation.
func confirmField(want string) *web.Field {
	return &web.Field{Name: "confirm", Label: "Type " + want + " to confirm", Autocomplete: "off"}
}

// confirmed reports whether the typed confirmation matches. If not, it sets the error of the field.
func (c *call) confirmed(f *web.Form, want string) bool {
	if web.Confirms(c.form.Get("confirm"), want) {
		return true
	}
	for _, x := range f.Fields {
		if x.Name == "confirm" {
			x.Value, x.Error = c.form.Get("confirm"), "The text differs from "+want+". Type it exactly."
		}
	}
	return false
}

// readAction records a page that changes nothing but shows a secret or exports data in the audit log.
func (c *call) readAction(name, target string) error {
	return c.Audit.Write(c.ctx(), c.entry(name, target))
}

// saveForm calls f and, if the visitor can correct the error, sets it on the form and returns the status for showing
// the form again. Otherwise the status is 0.
func saveForm(form *web.Form, f func() error) (status int, err error) {
	if err = f(); err == nil {
		return 0, nil
	}
	if _, ok := refused(err); !ok {
		return 0, err
	}
	if status, err = form.SetError(err); err != nil {
		return 0, err
	}
	return max(status, http.StatusBadRequest), nil
}
