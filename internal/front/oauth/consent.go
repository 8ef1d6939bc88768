package oauth

import (
	_ "embed"

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
)

const refusedHTML = `{{define "title"}}This request cannot be granted{{end}}
{{define "main"}}<div class="narrow">
<h1>This request cannot be granted</h1>
<p>{{or .Client "A program"}} sent an invalid request. Its developers need this message:</p>
<p class="problem">{{.Text}}</p>
{{- with .Back}}<p><a href="{{.}}" rel="noreferrer">Go back to {{$.Host}}</a></p>{{end}}
</div>{{end}}`

type refusedView struct{ Client, Text, Host, Back string }

// consentView is the content of the consent page.
type consentView struct {
	Client     string
	Unverified bool   // the client registered itself
	Host       string // where the browser is sent afterwards, in words
	Team       members.Membership
	Teams      []members.Membership // the choices
	Full       bool                 // the request asks for full access
	May        []string             // sentences about what the app will be able to do
	LeftOut    []string             // requested, but not allowed by the person's role
	Ways       []string             // ways in which the app will be able to send emails
	Limits     grants.Limits        // the proposed limits
	Lost       []string             // permissions that the app loses with any limit
	Broadcasts bool                 // the app could send or resume broadcasts, but not with any limit
	Drafts     bool                 // the app can write broadcasts, even with limits
	Unapproved []string             // permissions beyond Lost that the app loses if a person approves each email
	Uncounted  bool                 // the app's changes may start automations, whose emails no limit counts
	Params     []param              // parameters of the request, for the form
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
	if has.Has(teams.EmailsSend) { // without emails:send, a limit would take away what the client asks for
		view.Limits = q.Client.DefaultLimits()
	}
	for _, name := range authorizeParams {
		if p[name] != "" {
			view.Params = append(view.Params, param{name, p[name]})
		}
	}
	return view
}
