package dashboard

import (
	"net/http"

	"github.com/postrider/postrider/internal/front/web"
)

var keyPage = pageOf("key.html")

// keyView is the content of the page of one API key.
type keyView struct {
	base
	Key      keyRow
	Form     *web.Form
	Deleting bool // whether the form for deleting is shown in the page
	Confirm  string
	Refused  string // why it was not deleted
}

func (c *call) key() error { return c.keyPage(http.StatusOK, keyView{}) }

// keyPage shows a key. The data may contain a form that was refused.
func (c *call) keyPage(status int, data keyView) error {
	k, err := c.Teams.GetKey(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	names, err := c.domainNames()
	if err != nil {
		return err
	}
	data.base, data.Key = c.base(), keyRowOf(&k, names)
	data.Deleting = data.Deleting || c.r.URL.Query().Has("delete")
	if data.Form == nil {
		data.Form = renameForm(k.Name)
	}
	return c.show(status, keyPage, data, web.Crumbs("API keys", "/app/keys", k.Name), web.Class("form"))
}

func renameForm(name string) *web.Form {
	return web.NewForm(&web.Field{Name: "name", Label: "Name", Value: name, Max: 50})
}

func (c *call) renameKey() error {
	if err := c.Teams.RenameKey(c.ctx(), c.team.TeamID, c.id(), c.form.Get("name")); err != nil {
		form := renameForm("").Fill(c.form)
		status, ours := c.refuse(form, err, "The key was not renamed.")
		if ours != nil {
			return ours
		}
		return c.keyPage(status, keyView{Form: form})
	}
	return c.redirect(keyPath(c.id()), "Key renamed.")
}

func (c *call) deleteKey() error {
	k, err := c.Teams.GetKey(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	if !web.Confirms(c.form.Get("confirm"), k.Name) {
		return c.keyPage(http.StatusUnprocessableEntity, keyView{Deleting: true, Confirm: c.form.Get("confirm"),
			Refused: confirmError(web.Confirmation(k.Name))})
	}
	if err := c.Teams.DeleteKey(c.ctx(), c.team.TeamID, k.ID); err != nil {
		return err
	}
	return c.redirect("/app/keys", "Key "+k.Name+" deleted.")
}
