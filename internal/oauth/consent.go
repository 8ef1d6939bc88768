package oauth

import (
	_ "embed"

	"github.com/postrider/postrider/internal/grants"
	"github.com/postrider/postrider/internal/members"
	"github.com/postrider/postrider/internal/teams"
	"github.com/postrider/postrider/internal/web"
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
	Sends      bool                 // it will be able to send, which can be limited
	Limits     grants.Limits        // that are proposed
	Params     []param              // of the request, for the form
}

type param struct{ Name, Value string }

func pageOf(q *grants.Request, p params, v web.Visitor, m members.Membership, may teams.Scopes) consentView {
	granted := q.Scopes.Within(may)
	view := consentView{Client: q.Client.Name, Unverified: q.Client.Registered, Host: hostOf(q.RedirectURI), Team: m,
		Teams: v.Teams, Full: granted.Full, May: sentences(granted.All()), LeftOut: sentences(q.Scopes.All() &^ may),
		Sends: granted.All().Has(teams.EmailsSend), Limits: q.Client.Proposed()}
	for _, name := range asked {
		if p[name] != "" {
			view.Params = append(view.Params, param{name, p[name]})
		}
	}
	return view
}

// sentences says in words what scopes allow.
func sentences(set teams.Scopes) (all []string) {
	for _, x := range inWords {
		if set.Has(x.scope) {
			all = append(all, x.words)
		}
	}
	return all
}

// inWords says of each scope what it lets a program do, the one that matters most first.
var inWords = []struct {
	scope teams.Scope
	words string
}{
	{teams.EmailsSend, "Send emails and broadcasts in the name of the team"},
	{teams.EmailsRead, "Read the emails that the team has sent, with all they say"},
	{teams.ReceivingRead, "Read the emails that the team has received"},
	{teams.EmailsWrite, "Reschedule and cancel emails"},
	{teams.EmailsShare, "Make links by which anybody can read an email"},
	{teams.KeysRead, "See which API keys there are, but not the keys themselves"},
	{teams.KeysWrite, "Make and delete API keys, which go on working without this program"},
	{teams.DomainsRead, "See the domains of the team"},
	{teams.DomainsWrite, "Add, change and delete domains"},
	{teams.WebhooksRead, "See webhooks and the events that they tell of"},
	{teams.WebhooksWrite, "Add, change and delete webhooks, and read their secrets"},
	{teams.ContactsRead, "Read contacts and what is noted of them"},
	{teams.ContactsWrite, "Add, change, import and delete contacts"},
	{teams.SegmentsRead, "See segments of contacts"},
	{teams.SegmentsWrite, "Change segments of contacts"},
	{teams.TopicsRead, "See the topics that contacts can subscribe to"},
	{teams.TopicsWrite, "Change the topics that contacts can subscribe to"},
	{teams.BroadcastsRead, "Read broadcasts and their results"},
	{teams.BroadcastsWrite, "Write, change, pause and delete broadcasts"},
	{teams.TemplatesRead, "Read templates"},
	{teams.TemplatesWrite, "Write, publish and delete templates"},
	{teams.AutomationsRead, "See automations and their runs"},
	{teams.AutomationsWrite, "Change automations, which send emails by themselves"},
	{teams.EventsRead, "See custom events"},
	{teams.EventsWrite, "Change custom events"},
	{teams.EventsSend, "Send custom events, which start automations"},
	{teams.SuppressionsRead, "See which addresses are not mailed"},
	{teams.SuppressionsWrite, "Change which addresses are not mailed"},
	{teams.LogsRead, "Read the log of API requests"},
	{teams.UsageRead, "See how much the team has used"},
	{teams.MembersRead, "See the people of the team"},
	{teams.MembersWrite, "Invite and remove people, but no owners"},
	{teams.AuditRead, "Read the log of what people and programs did"},
	{teams.GrantsRead, "See which programs may act for the team"},
	{teams.GrantsWrite, "Revoke what programs may do"},
	{teams.ApprovalsRequest, "Ask whether an email may go, which a person decides"},
	{teams.ApprovalsRead, "See what waits for approval"},
	{teams.ApprovalsWrite, "Approve what other programs want to send"},
}
