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
<p>{{or .Client "A program"}} has asked in a way that is not allowed. This is for the people who make it:</p>
<p class="problem">{{.Text}}</p>
{{- with .Back}}<p><a href="{{.}}" rel="noreferrer">Go back to {{$.Host}}</a></p>{{end}}
</div>{{end}}`

type refusedView struct{ Client, Text, Host, Back string }

// consentView is what the page of consent shows.
type consentView struct {
	Client     string
	Unverified bool   // the client has registered itself
	Host       string // that the browser is sent to, in words
	Team       members.Membership
	Teams      []members.Membership // to choose from
	Full       bool                 // all that a grant may have
	May        []string             // what it will be able to do, in sentences
	LeftOut    []string             // what it asks for and the person may not do
	Ways       []string             // by which it will be able to make emails go, which can be limited
	Limits     grants.Limits        // that are proposed
	Lost       []string             // what it will not be able to do with any limit
	Broadcasts bool                 // it will be able to send or resume broadcasts, and not with any limit
	Drafts     bool                 // and to write them, also with limits
	Unapproved []string             // what else it will not be able to do if a person approves each email
	Uncounted  bool                 // automations may send for what it changes, which no limit counts
	Params     []param              // of the request, for the form
}

type param struct{ Name, Value string }

func pageOf(q *grants.Request, p params, v web.Visitor, m members.Membership, may teams.Scopes) consentView {
	granted := q.Scopes.Intersect(may)
	has := granted.All()
	limited, approved := grants.Limits{Recipients: 1}, grants.Limits{Approval: true}
	view := consentView{Client: q.Client.Name, Unverified: q.Client.Registered, Host: hostOf(q.RedirectURI), Team: m,
		Teams: v.Teams, Full: granted.Full,
		May: grants.DescribeScopes(has, false), LeftOut: grants.DescribeScopes(q.Scopes.All()&^may, false), Ways: grants.DescribeSending(has),
		Lost: grants.DescribeScopes(limited.RemovedScopes(has), false), Drafts: has.Has(teams.BroadcastsWrite),
		Broadcasts: has.Has(teams.EmailsSend) || has.Has(teams.BroadcastsWrite),
		Unapproved: grants.DescribeScopes(approved.RemovedScopes(has)&^limited.RemovedScopes(has), false),
		Uncounted:  has.Has(teams.ContactsWrite) || has.Has(teams.TemplatesWrite)}
	if has.Has(teams.EmailsSend) { // without it, a limit takes away what the program asks for
		view.Limits = q.Client.DefaultLimits()
	}
	for _, name := range asked {
		if p[name] != "" {
			view.Params = append(view.Params, param{name, p[name]})
		}
	}
	return view
}
