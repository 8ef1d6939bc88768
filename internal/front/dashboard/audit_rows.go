package dashboard

import (
	"cmp"
	"net/url"
	"regexp"
	"strings"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/page"
)

// auditRow is an entry of the audit log as a sentence: the actor, the words of the action, and the object.
type auditRow struct {
	audit.Entry
	Actor  string
	Words  string
	Object objectView
	Detail string // what the sentence does not say
}

// objectView is the object of an action. Its fields are empty if the sentence needs no object.
type objectView struct {
	Name string
	Href string // its page, if the object still exists and the visitor may see it
	ID   string // the id, if the name is not known
}

// actionWords are the words of actions that cannot be formed from the name of the action. The object follows them.
var actionWords = map[string]string{
	audit.UserSignedIn:            "signed in",
	audit.UserSignInFailed:        "failed to sign in",
	audit.UserSignedOut:           "signed out",
	audit.UserUpdated:             "changed the account",
	audit.PasswordChanged:         "changed the password",
	audit.PasswordReset:           "reset the password by a link",
	audit.FactorAdded:             "added a second factor",
	audit.FactorRemoved:           "removed a second factor",
	audit.RecoveryUsed:            "used a recovery code",
	audit.IdentityLinked:          "linked a sign-in provider",
	audit.IdentityRemoved:         "removed a sign-in provider",
	audit.SessionEnded:            "ended a session",
	audit.MemberInvited:           "invited",
	audit.MemberJoined:            "joined the team",
	audit.MemberRoleChanged:       "changed the role of",
	audit.MemberRemoved:           "removed the member",
	audit.MemberLeft:              "left the team",
	audit.InvitationRefused:       "opened an invitation of another person",
	audit.InvitationSent:          "sent the invitation again to",
	audit.InvitationRevoked:       "revoked the invitation of",
	audit.ClientRegistered:        "registered the app",
	audit.GrantCreated:            "connected the app",
	audit.GrantUpdated:            "changed the limits of a connected app",
	audit.GrantRevoked:            "disconnected an app",
	audit.GrantReused:             "used a token twice, so the app was disconnected",
	audit.ApprovalFailed:          "could not send",
	audit.ApprovalRequested:       "asked for approval of",
	audit.ApprovalApproved:        "approved",
	audit.ApprovalRejected:        "rejected",
	teamRenamed:                   "renamed the team",
	"suppressions.created":        "added addresses to the suppressions",
	"suppressions.deleted":        "removed addresses from the suppressions",
	"contact.segment_added":       "added a segment to the contact",
	"contact.segment_removed":     "removed a segment from the contact",
	"contact.topics_updated":      "changed the topics of the contact",
	"broadcast.winner_chosen":     "chose the winner of the broadcast",
	"broadcast.tested":            "sent a test of the broadcast",
	"automation.run_cancelled":    "canceled a run of the automation",
	"automation.secret_shown":     "looked at the signing secret of automations",
	"webhook.secret_shown":        "looked at the signing secret of the webhook",
	"webhook.secret_rotated":      "rotated the signing secret of the webhook",
	"webhook.event_replayed":      "replayed a message of the webhook",
	"webhook.recovered":           "sent missed messages to the webhook",
	"domain.verification_started": "started the look-up of the records of the domain",
	"domain.mta_sts_updated":      "changed the MTA-STS policy of the domain",
	"domain.keys_rotated":         "replaced the DKIM keys of the domain",
	"domain.claim_verified":       "checked the claim to the domain",
	"domain.setup_changed":        "changed the set-up of the domain",
	"domain.forward_created":      "created a forwarding rule of the domain",
	"domain.forward_updated":      "changed a forwarding rule of the domain",
	"domain.forward_deleted":      "deleted a forwarding rule of the domain",
	"domain.forward_asked":        "asked again for the confirmation of a forwarding rule of the domain",
	"template.restored":           "restored an earlier version of the template",
	"audit.exported":              "exported the audit log",
	"logs.exported":               "exported the request log",

	"domain.forward_secret_shown":   "looked at the signing secret of a forwarding rule of the domain",
	"domain.forward_secret_rotated": "rotated the signing secret of a forwarding rule of the domain",
}

// nouns and verbs are the words for parts of an action's name that the name does not have itself.
var (
	nouns = map[string]string{"api_key": "API key", "import": "contact import"}
	verbs = map[string]string{"cancelled": "canceled", "updated": "changed"}
)

// auditWords returns the words of an action, such as "created the domain" for domain.created.
func auditWords(action string) string {
	if words, ok := actionWords[action]; ok {
		return words
	}
	noun, verb, _ := strings.Cut(action, ".")
	words := cmp.Or(verbs[verb], verb, "did") + " the " + cmp.Or(nouns[noun], noun)
	return strings.ReplaceAll(words, "_", " ")
}

// limitsPattern matches how an entry describes the limits of a connected app, in the words of the API
// ([grants.Limits.String]).
var limitsPattern = regexp.MustCompile(`recipients_per_email (\w+), emails_per_day (\w+), approval (\w+)`)

// detailWords returns the detail of an entry in the words of the pages.
func detailWords(e *audit.Entry) string {
	switch e.Action {
	case audit.GrantUpdated:
		text := limitsPattern.ReplaceAllStringFunc(e.Detail, func(limits string) string {
			m := limitsPattern.FindStringSubmatch(limits)
			var all []string
			if m[1] != "none" {
				all = append(all, "at most "+m[1]+" recipients of one email")
			}
			if m[2] != "none" {
				all = append(all, "at most "+m[2]+" emails a day")
			}
			if m[3] == "true" {
				all = append(all, "a person approves each email")
			}
			return cmp.Or(strings.Join(all, ", "), "no limits")
		})
		return strings.NewReplacer("before: ", "Before: ", "; now: ", ". Now: ").Replace(text)
	case audit.GrantRevoked:
		reason, more, _ := strings.Cut(e.Detail, ": ")
		return strings.TrimSuffix(cmp.Or(revokeReasons[grants.Reason(reason)], reason)+", "+more, ", ")
	case "domain.setup_changed":
		return setupWords.Replace(e.Detail)
	case "domain.mta_sts_updated":
		return policyWords.Replace(e.Detail)
	case "domain.keys_rotated":
		return keyWords.Replace(e.Detail)
	case audit.ApprovalApproved:
		return "" // the id of the email, to which the page of the approval links
	}
	return e.Detail
}

// These replace the names of fields in the details of domains' entries.
var (
	setupWords = strings.NewReplacer("setup before: ", "Set-up before: ", "; dmarc before: ", ". DMARC record before: ",
		"dmarc before: ", "DMARC record before: ", "; bimi before: ", ". BIMI record before: ", "bimi before: ",
		"BIMI record before: ")
	policyWords = strings.NewReplacer("mode before: ", "Mode before: ", "; max_age before: ",
		". Lifetime in seconds before: ", "max_age before: ", "Lifetime in seconds before: ", "; hosts before: ",
		". Hosts before: ", "hosts before: ", "Hosts before: ")
	keyWords = strings.NewReplacer("ordinary; signing: ", "Ordinary rotation. Selectors that signed: ",
		"emergency; signing: ", "Emergency. Selectors that signed: ", "; next: ", ". New ones: ")
)

// revokeReasons says why an app was disconnected. Further words may follow.
var revokeReasons = map[grants.Reason]string{
	grants.FromAPI:      "by the API",
	grants.FromSite:     "by this dashboard",
	grants.ByClient:     "by the app itself",
	grants.TokenReused:  "a refresh token was used twice",
	grants.CodeReused:   "an authorization code was used twice",
	grants.UserLeft:     "the person who had allowed it left the team or was disabled",
	grants.KeyDeleted:   "the API key that had allowed it was deleted",
	grants.GrantExpired: "the app did not use it for two months",
}

// saysDetail are the actions whose detail is the object of the sentence.
var saysDetail = map[string]bool{audit.MemberInvited: true, audit.MemberRoleChanged: true, audit.MemberRemoved: true,
	audit.InvitationSent: true, audit.InvitationRevoked: true, audit.ClientRegistered: true}

// needsNone are the actions whose sentence is whole without an object.
var needsNone = map[string]bool{audit.UserSignedIn: true, audit.UserSignInFailed: true, audit.UserSignedOut: true,
	audit.UserUpdated: true, audit.PasswordChanged: true, audit.PasswordReset: true, audit.FactorAdded: true,
	audit.FactorRemoved: true, audit.RecoveryUsed: true, audit.IdentityLinked: true, audit.IdentityRemoved: true,
	audit.SessionEnded: true, audit.MemberJoined: true, audit.MemberLeft: true, audit.InvitationRefused: true,
	audit.GrantUpdated: true, audit.GrantRevoked: true, audit.GrantReused: true, teamRenamed: true}

// auditRows returns the sentences of entries.
func (c *call) auditRows(all []audit.Entry) ([]auditRow, error) {
	n := auditNames{call: c, lists: map[string]map[string]string{}, found: map[string]objectView{}}
	var rows []auditRow
	for _, e := range all {
		row := auditRow{Entry: e, Words: auditWords(e.Action), Detail: detailWords(&e)}
		var err error
		if row.Actor, err = n.actor(&e); err != nil {
			return nil, err
		}
		switch {
		case saysDetail[e.Action] && e.Detail != "":
			row.Object, row.Detail = objectView{Name: e.Detail}, ""
		case e.Action == audit.GrantCreated:
			row.Object.Name, row.Detail, _ = strings.Cut(e.Detail, ": ")
			row.Object.Href = "/app/apps"
		case e.Target != "" && !needsNone[e.Action]:
			if row.Object, err = n.object(e.Action, e.Target); err != nil {
				return nil, err
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// auditNames looks up the names of actors and objects. It asks for each once.
type auditNames struct {
	*call
	lists map[string]map[string]string // names by the id, of what a team has few
	found map[string]objectView
}

// actor returns the name of the actor of an entry.
func (n *auditNames) actor(e *audit.Entry) (string, error) {
	switch teams.ActorKind(e.ActorKind) {
	case teams.KeyActor:
		return "API key " + cmp.Or(e.ActorName, "without a name"), nil
	case teams.GrantActor:
		return cmp.Or(e.ActorName, "A connected app"), nil
	case teams.UserActor:
		names, err := n.list("member", teams.MembersRead)
		return cmp.Or(names[e.ActorID], e.ActorName, "A person"), err
	}
	return cmp.Or(e.ActorName, "Postrider"), nil
}

// list returns the names of the team's domains, keys, webhooks or members, or none if the visitor may not see them.
func (n *auditNames) list(of string, scope teams.Scope) (map[string]string, error) {
	if names, ok := n.lists[of]; ok {
		return names, nil
	}
	names := map[string]string{}
	n.lists[of] = names
	if !n.call.actor.Scopes.Has(scope) {
		return names, nil
	}
	p := page.Page{Limit: choicesShown}
	switch of {
	case "domain":
		all, _, err := n.Domains.List(n.ctx(), n.team.TeamID, p)
		for i := range all {
			names[all[i].ID] = all[i].Name
		}
		return names, err
	case "api_key":
		all, _, err := n.Teams.ListKeys(n.ctx(), n.team.TeamID, p)
		for i := range all {
			names[all[i].ID] = all[i].Name
		}
		return names, err
	case "webhook":
		all, _, err := n.Webhooks.List(n.ctx(), n.team.TeamID, p)
		for i := range all {
			names[all[i].ID] = all[i].URL
		}
		return names, err
	}
	all, _, err := n.Members.List(n.ctx(), n.team.TeamID, p)
	for i := range all {
		names[all[i].UserID] = cmp.Or(all[i].Name, all[i].Email)
	}
	return names, err
}

// listed are the objects whose names come from a list, with their pages.
var listed = map[string]struct {
	scope teams.Scope
	path  string
}{"domain": {teams.DomainsRead, "/app/domains/"}, "api_key": {teams.KeysRead, "/app/keys/"},
	"webhook": {teams.WebhooksRead, "/app/webhooks/"}}

// object returns the object of an action. A target that is no id is a name, such as that of an event.
func (n *auditNames) object(action, target string) (objectView, error) {
	kind, _, _ := strings.Cut(action, ".")
	if !id.Valid(target) {
		return objectView{Name: target}, nil
	}
	if l, ok := listed[kind]; ok {
		names, err := n.list(kind, l.scope)
		if name := names[target]; name != "" {
			return objectView{Name: name, Href: l.path + target}, err
		}
		return objectView{ID: target}, err
	}
	key := kind + target
	if o, ok := n.found[key]; ok {
		return o, nil
	}
	o, err := n.lookUp(kind, target)
	if fault.KindOf(err) == fault.NotFound {
		err = nil
	}
	if o.Name == "" {
		o = objectView{ID: target}
	}
	n.found[key] = o
	return o, err
}

// lookUp reads the name of an object of which a team has many. The name is empty if the visitor may not see the object.
func (n *auditNames) lookUp(kind, target string) (o objectView, err error) {
	may := func(s teams.Scope) bool { return n.call.actor.Scopes.Has(s) }
	switch {
	case kind == "email" && may(teams.EmailsRead):
		e, _, err := n.Emails.GetWithin(n.ctx(), n.team.TeamID, target, 0)
		if err != nil {
			return o, err
		}
		return objectView{Name: cutSubject(e.Subject), Href: emailPath(target)}, nil
	case kind == "contact" && may(teams.ContactsRead):
		x, err := n.Contacts.Get(n.ctx(), n.team.TeamID, target)
		return objectView{Name: x.Address, Href: "/app/contacts/" + url.PathEscape(target)}, err
	case kind == "suppression" && may(teams.SuppressionsRead):
		x, err := n.Suppressions.Get(n.ctx(), n.team.TeamID, target)
		return objectView{Name: x.Address, Href: "/app/suppressions/" + url.PathEscape(target)}, err
	case kind == "broadcast" && may(teams.BroadcastsRead):
		x, err := n.Broadcasts.Get(n.ctx(), n.team.TeamID, target)
		return objectView{Name: cmp.Or(x.Name, x.Subject), Href: "/app/broadcasts/" + url.PathEscape(target)}, err
	case kind == "approval" && may(teams.ApprovalsRead):
		return objectView{Name: "an email", Href: "/app/approvals/" + url.PathEscape(target)}, nil
	}
	return o, nil
}
