package api

import (
	"context"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/sending/templates"
)

// addresses is a list of addresses in a response. An empty list is written as null.
type addresses []string

// MarshalJSONTo writes the list or null.
func (a addresses) MarshalJSONTo(e *jsontext.Encoder) error {
	if len(a) == 0 {
		return e.WriteToken(jsontext.Null)
	}
	return json.MarshalEncode(e, []string(a))
}

// Schema describes a list or null in the OpenAPI document.
func (addresses) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}}, {Type: "null"}}}
}

// valuesOf returns the values that are not null.
func valuesOf(in map[string]scalarValue) map[string]scalar.Value {
	values := make(map[string]scalar.Value, len(in))
	for name, v := range in {
		if v.Value != (scalar.Value{}) {
			values[name] = v.Value
		}
	}
	return values
}

type variableIn struct {
	Key           string      `json:"key" doc:"ASCII letters, digits and underscores. Placeholders have the form {{{KEY}}}." maxLength:"50" example:"FIRST_ITEM"`
	Type          string      `json:"type" enum:"string,number"`
	FallbackValue scalarValue `json:"fallback_value,omitzero" doc:"Used by emails that set no value. Without a fallback, every email must set one."`
}

func templateVariables(in []variableIn) []templates.Declaration {
	all := make([]templates.Declaration, len(in))
	for i, v := range in {
		all[i] = templates.Declaration{Key: v.Key, Type: v.Type, Fallback: v.FallbackValue.Value}
	}
	return all
}

type createTemplateIn struct {
	Name      string                                       `json:"name" maxLength:"255" example:"Order confirmation"`
	Alias     string                                       `json:"alias,omitzero" doc:"A name that requests can use instead of the ID: ASCII letters, digits, underscores and dashes." maxLength:"100" example:"order-confirmation"`
	From      string                                       `json:"from,omitzero" doc:"The default sender of emails with this template."`
	Subject   string                                       `json:"subject,omitzero" doc:"The default subject of emails with this template; placeholders are replaced." maxLength:"998"`
	ReplyTo   wire.Strings[maxRecipients]                  `json:"reply_to,omitzero"`
	HTML      *string                                      `json:"html" nullable:"false" doc:"Placeholders such as {{{KEY}}} are replaced by values."`
	Text      *string                                      `json:"text,omitzero" doc:"The plain text. Generated from the HTML if absent; an empty string sends no text part."`
	Variables wire.Array[variableIn, maxTemplateVariables] `json:"variables,omitzero" doc:"The variables that emails can set; at most 50."`
}

type updateTemplateIn struct {
	Name      *string                                       `json:"name,omitzero" nullable:"false" maxLength:"255"`
	Alias     wire.Optional[string]                         `json:"alias,omitzero" doc:"Null removes it."`
	From      wire.Optional[string]                         `json:"from,omitzero" doc:"Null removes it."`
	Subject   wire.Optional[string]                         `json:"subject,omitzero" doc:"Null removes it."`
	ReplyTo   wire.Optional[wire.Strings[maxRecipients]]    `json:"reply_to,omitzero" doc:"Null or an empty list removes all addresses."`
	HTML      *string                                       `json:"html,omitzero" nullable:"false"`
	Text      wire.Optional[string]                         `json:"text,omitzero" doc:"Null generates it from the HTML; an empty string means no text part."`
	Variables *wire.Array[variableIn, maxTemplateVariables] `json:"variables,omitzero" nullable:"false" doc:"Replaces all variables; an existing key keeps its ID."`
}

// change converts an update request to a templates.Change. For the name and the HTML, null and an empty string are
// treated as absent. The Go client always sends both fields, and the .NET client sends null for unset fields. In the
// other fields except the text, null removes the value, and an empty string is treated as absent.
func (in *updateTemplateIn) change() (c templates.Change) {
	given := func(o wire.Optional[string]) *string {
		switch {
		case !o.Given || o.Value != nil && *o.Value == "":
			return nil
		case o.Value == nil:
			return new("")
		}
		return o.Value
	}
	c.Alias, c.From, c.Subject = given(in.Alias), given(in.From), given(in.Subject)
	if in.Name != nil && *in.Name != "" {
		c.Name = in.Name
	}
	if in.HTML != nil && *in.HTML != "" {
		c.HTML = in.HTML
	}
	if in.Text.Given {
		c.Text = &in.Text.Value
	}
	switch r := in.ReplyTo; {
	case r.Given && r.Value == nil:
		c.ReplyTo = new([]string)
	case r.Given && *r.Value != nil: // the value is nil if the client sent an empty string
		c.ReplyTo = (*[]string)(r.Value)
	}
	if in.Variables != nil {
		c.Variables = new(templateVariables(*in.Variables))
	}
	return c
}

// TemplateItem represents a template in a list. TemplateItem is exported because Huma skips the fields of unexported
// embedded types.
type TemplateItem struct {
	ID          string      `json:"id"`
	Name        string      `json:"name" example:"Order confirmation"`
	Status      string      `json:"status" enum:"draft,published" doc:"draft until the template is published for the first time."`
	PublishedAt wire.DBTime `json:"published_at" nullable:"true"`
	CreatedAt   wire.DBTime `json:"created_at"`
	UpdatedAt   wire.DBTime `json:"updated_at"`
	Alias       *string     `json:"alias" example:"order-confirmation"`
}

func templateToItem(t templates.Template) TemplateItem {
	i := TemplateItem{t.ID, t.Name, "draft", wire.DBTime(t.PublishedAt), wire.DBTime(t.CreatedAt),
		wire.DBTime(t.UpdatedAt), orNull(t.Alias)}
	if t.Published() {
		i.Status = "published"
	}
	return i
}

type variableWire struct {
	ID            string      `json:"id"`
	Key           string      `json:"key" example:"FIRST_ITEM"`
	Type          string      `json:"type" enum:"string,number"`
	FallbackValue scalarValue `json:"fallback_value"`
	CreatedAt     wire.DBTime `json:"created_at"`
	UpdatedAt     wire.DBTime `json:"updated_at"`
}

// TemplateText is the content of a template version. TemplateText is exported because Huma skips the fields of
// unexported embedded types.
type TemplateText struct {
	From      *string        `json:"from"`
	Subject   *string        `json:"subject"`
	ReplyTo   addresses      `json:"reply_to"`
	HTML      string         `json:"html"`
	Text      string         `json:"text" doc:"Generated from the HTML if the template has no text."`
	Variables []variableWire `json:"variables"`
}

func versionToText(v *templates.Version) TemplateText {
	t := TemplateText{orNull(v.From), orNull(v.Subject), v.ReplyTo, v.HTML, v.PlainOrConverted(), []variableWire{}}
	for _, d := range v.Variables {
		t.Variables = append(t.Variables, variableWire{d.ID, d.Key, string(d.Type), scalarValue{d.Fallback},
			wire.DBTime(d.CreatedAt), wire.DBTime(d.UpdatedAt)})
	}
	return t
}

type templateWire struct {
	Object string `json:"object"`
	TemplateItem
	TemplateText
	CurrentVersionID       string `json:"current_version_id" doc:"The newest version, which this response shows."`
	HasUnpublishedVersions bool   `json:"has_unpublished_versions" doc:"Whether the newest version is unpublished."`
}

// TemplateVersionItem represents a template version in a list. TemplateVersionItem is exported because Huma skips the
// fields of unexported embedded types.
type TemplateVersionItem struct {
	ID          string      `json:"id"`
	Number      int64       `json:"number" doc:"Counted from 1."`
	Current     bool        `json:"current" doc:"Whether this is the newest version."`
	Published   bool        `json:"published" doc:"Whether emails are sent with this version."`
	CreatedAt   wire.DBTime `json:"created_at"`
	PublishedAt wire.DBTime `json:"published_at" nullable:"true" doc:"When the version was last published."`
}

func versionToItem(t *templates.Template, v *templates.Version) TemplateVersionItem {
	return TemplateVersionItem{v.ID, v.Number, v.ID == t.CurrentID, v.ID == t.PublishedID, wire.DBTime(v.CreatedAt),
		wire.DBTime(v.PublishedAt)}
}

type templateVersionWire struct {
	Object     string `json:"object"`
	TemplateID string `json:"template_id"`
	TemplateVersionItem
	TemplateText
}

func (a *API) createTemplate(ctx context.Context, c *wire.Call, in createTemplateIn) (ref, error) {
	t, err := a.Services.Templates.Create(ctx, c.TeamID, templates.NewTemplate{Name: in.Name, Alias: in.Alias,
		From: in.From, Subject: in.Subject, ReplyTo: in.ReplyTo, HTML: in.HTML, Text: in.Text,
		Variables: templateVariables(in.Variables)})
	return ref{"template", t.ID}, err
}

func (a *API) listTemplates(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[TemplateItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return wire.List[TemplateItem]{}, err
	}
	all, more, err := a.Services.Templates.List(ctx, c.TeamID, p)
	return wire.ListOf(all, more, templateToItem), err
}

func (a *API) getTemplate(ctx context.Context, c *wire.Call, _ wire.None) (templateWire, error) {
	t, v, err := a.Services.Templates.Get(ctx, c.TeamID, c.Param("template"))
	if err != nil {
		return templateWire{}, err
	}
	c.ReleaseSource(v.Close)
	return templateWire{"template", templateToItem(t), versionToText(&v), v.ID, t.HasUnpublished()}, nil
}

func (a *API) updateTemplate(ctx context.Context, c *wire.Call, in updateTemplateIn) (ref, error) {
	change := in.change()
	if err := c.RequireChange(in, change); err != nil {
		return ref{}, err
	}
	t, err := a.Services.Templates.Update(ctx, c.TeamID, c.Param("template"), change)
	return ref{"template", t.ID}, err
}

func (a *API) deleteTemplate(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	id, err := a.Services.Templates.Delete(ctx, c.TeamID, c.Param("template"))
	return gone{"template", id, true}, err
}

func (a *API) publishTemplate(ctx context.Context, c *wire.Call, _ wire.None) (ref, error) {
	if err := c.Actor.RequirePublisher(); err != nil {
		return ref{}, err
	}
	t, err := a.Services.Templates.Publish(ctx, c.TeamID, c.Param("template"))
	return ref{"template", t.ID}, err
}

func (a *API) duplicateTemplate(ctx context.Context, c *wire.Call, _ wire.None) (ref, error) {
	t, err := a.Services.Templates.Duplicate(ctx, c.TeamID, c.Param("template"))
	return ref{"template", t.ID}, err
}

type renderTemplateIn struct {
	Variables wire.Object[scalarValue, maxVariables] `json:"variables,omitzero" doc:"Values of the variables, as in a request that sends an email."`
	Version   string                                 `json:"version,omitzero" doc:"published, draft for the newest version, or the ID or number of a version." default:"published"`
}

type renderTemplateOut struct {
	Object  string    `json:"object"`
	Subject *string   `json:"subject"`
	From    *string   `json:"from"`
	ReplyTo addresses `json:"reply_to"`
	HTML    string    `json:"html"`
	Text    string    `json:"text" doc:"The text that would be sent; empty if there is no text part."`
}

func (a *API) renderTemplate(ctx context.Context, c *wire.Call, in renderTemplateIn) (renderTemplateOut, error) {
	r, err := a.Services.Templates.Render(ctx, c.TeamID, c.Param("template"),
		templates.RenderOptions{Version: in.Version, Variables: valuesOf(in.Variables)})
	c.ReleaseSource(r.Close)
	return renderTemplateOut{"rendered_template", orNull(r.Subject), orNull(r.From), r.ReplyTo, r.HTML, r.Text}, err
}

func (a *API) listTemplateVersions(ctx context.Context, c *wire.Call, _ wire.None) (
	wire.List[TemplateVersionItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return wire.List[TemplateVersionItem]{}, err
	}
	t, all, more, err := a.Services.Templates.Versions(ctx, c.TeamID, c.Param("template"), p)
	return wire.ListOf(all, more, func(v templates.Version) TemplateVersionItem { return versionToItem(&t, &v) }), err
}

func (a *API) getTemplateVersion(ctx context.Context, c *wire.Call, _ wire.None) (templateVersionWire, error) {
	t, v, err := a.Services.Templates.Version(ctx, c.TeamID, c.Param("template"), c.Param("version"))
	if err != nil {
		return templateVersionWire{}, err
	}
	c.ReleaseSource(v.Close)
	return templateVersionWire{"template_version", t.ID, versionToItem(&t, &v), versionToText(&v)}, nil
}

func (a *API) restoreTemplateVersion(ctx context.Context, c *wire.Call, _ wire.None) (ref, error) {
	t, err := a.Services.Templates.Restore(ctx, c.TeamID, c.Param("template"), c.Param("version"))
	return ref{"template", t.ID}, err
}

type versionRef struct {
	ID     string `json:"id"`
	Number int64  `json:"number"`
}

type changedFields struct {
	From      bool `json:"from"`
	Subject   bool `json:"subject"`
	ReplyTo   bool `json:"reply_to"`
	HTML      bool `json:"html"`
	Text      bool `json:"text"`
	Variables bool `json:"variables"`
}

type diffs struct {
	HTML string `json:"html"`
	Text string `json:"text"`
}

type compareVersionsOut struct {
	Object     string        `json:"object"`
	TemplateID string        `json:"template_id"`
	A          versionRef    `json:"a"`
	B          versionRef    `json:"b"`
	Changed    changedFields `json:"changed" doc:"Whether each field differs."`
	Diff       diffs         `json:"diff" doc:"Unified diffs from a to b; empty if nothing differs."`
}

func (a *API) compareTemplateVersions(ctx context.Context, c *wire.Call, _ wire.None) (compareVersionsOut, error) {
	d, err := a.Services.Templates.Compare(ctx, c.TeamID, c.Param("template"), c.Param("version"), c.Param("other"))
	c.ReleaseSource(d.Close)
	return compareVersionsOut{"template_comparison", d.TemplateID, versionRef{d.A.ID, d.A.Number},
		versionRef{d.B.ID, d.B.Number}, changedFields{d.From, d.Subject, d.ReplyTo, d.HTML, d.Text, d.Variables},
		diffs{d.HTMLDiff, d.TextDiff}}, err
}
