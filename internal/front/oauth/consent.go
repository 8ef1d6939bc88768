package oauth

import (
	_ "embed"
	"html/template"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
)

var (
	//go:embed consent.html
	consentHTML string
	consentPage = web.Page(consentHTML)
	refusedPage = web.Page(refusedHTML)
	openPage    = web.Page(openHTML)
)

const refusedHTML = `{{define "title"}}This request cannot be granted{{end}}
{{define "main"}}
<h1>This request cannot be granted</h1>
<p class="gap">{{if .Client}}{{shown .Client}}{{else}}A program{{end}} sent an invalid request. Its developers need this
message:</p>
{{template "problem" .Text}}
{{- with .Back}}<a href="{{.}}" class="b" rel="noreferrer">Go back to {{$.Host}}</a>{{end}}
{{end}}`

// openHTML is the page from which a person returns to a client whose redirect URI has a private scheme.
const openHTML = `{{define "title"}}Return to {{shown .Client}}{{end}}
{{define "main"}}
<h1>{{if .Refused}}This request was not granted{{else}}{{shown .Client}} may act for the team{{end}}</h1>
{{- template "problem" .Text}}
<p class="gap">To return to <strong>{{shown .Client}}</strong>, open this link. This computer opens it with the
program that handles links with <code>{{.Scheme}}:</code>.{{if .Unverified}} Anyone can register any name, so open it only
if you came from that program.{{end}}</p>
<a href="{{.URI}}" class="b primary wide" rel="noreferrer">Open {{shown .Client}} with {{.Scheme}}:</a>
{{end}}`

// openView is the content of openHTML.
type openView struct {
	Client, Scheme, Text string
	URI                  template.URL // the redirect URI with the response; its scheme has been checked at registration
	Refused, Unverified  bool
}

type refusedView struct{ Client, Text, Host, Back string }

// consentView is the content of the consent page.
type consentView struct {
	Client     string
	Unverified bool   // whether the client registered itself
	Host       string // description of where the browser is redirected after consent
	Team       members.Membership
	Teams      []members.Membership // the choices
	Full       bool                 // whether the request is for full access
	May        []string             // sentences that describe the permissions that the app gets
	LeftOut    []string             // requested permissions that the person's role does not allow
	Ways       []string             // ways in which the app can send emails
	Limits     grants.Limits        // the proposed limits
	Lost       []string             // permissions that the app loses if any limit is set
	Broadcasts bool                 // whether any limit prevents the app from sending or resuming broadcasts
	Drafts     bool                 // whether the app can write broadcasts, even if limits are set
	Unapproved []string             // additional permissions that the app loses if each email needs approval
	Uncounted  bool                 // whether the app can start automations, whose emails do not count towards limits
	Params     []param              // request parameters that are repeated in the form
}

type param struct{ Name, Value string }

func pageOf(q *grants.Request, p params, v web.Visitor, m members.Membership, may teams.Scopes) consentView {
	granted := q.Scopes.Intersect(may)
	has := granted.All()
	limited, approved := grants.Limits{Recipients: 1}, grants.Limits{Approval: true}
	view := consentView{Client: q.Client.Name, Unverified: q.Client.Registered, Host: hostOf(q.RedirectURI), Team: m,
		Teams: v.Teams, Full: granted.Full,
		May: grants.DescribeScopes(has, false), LeftOut: grants.DescribeScopes(q.Scopes.All()&^may, false),
		Ways: grants.DescribeSending(has),
		Lost: grants.DescribeScopes(limited.RemovedScopes(has), false), Drafts: has.Has(teams.BroadcastsWrite),
		Broadcasts: has.Has(teams.EmailsSend) || has.Has(teams.BroadcastsWrite),
		Unapproved: grants.DescribeScopes(approved.RemovedScopes(has)&^limited.RemovedScopes(has), false),
		Uncounted:  has.Has(teams.ContactsWrite) || has.Has(teams.TemplatesWrite)}
	if has.Has(teams.EmailsSend) { // without emails:send, a limit would only remove requested permissions
		view.Limits = q.Client.DefaultLimits()
	}
	for _, name := range authorizeParams {
		if p[name] != "" {
			view.Params = append(view.Params, param{name, p[name]})
		}
	}
	return view
}
