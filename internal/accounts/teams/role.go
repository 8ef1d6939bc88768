package teams

// Role determines what a member may do in a team.
type Role string

const (
	Owner  Role = "owner"  // everything
	Admin  Role = "admin"  // everything except adding and removing owners
	Member Role = "member" // manages emails, domains, webhooks and contacts, but not members or full-access keys
	Viewer Role = "viewer" // reads everything except secrets
)

// Roles lists all roles, starting with the most powerful.
var Roles = []Role{Owner, Admin, Member, Viewer}

// readScopes are the scopes that neither change data nor reveal secrets.
var readScopes = NewScopes(EmailsRead, ReceivingRead, DomainsRead, KeysRead, SuppressionsRead, WebhooksRead, LogsRead,
	UsageRead, TemplatesRead, ContactsRead, SegmentsRead, TopicsRead, BroadcastsRead, EventsRead, AutomationsRead,
	MembersRead, GrantsRead, ApprovalsRead)

// Scopes returns the scopes that the role gives a member. A role that this release does not know has no scopes.
//
// Members cannot create keys with more rights than their own (see [Service.CreateKey]), so only an admin can create a
// full-access key.
func (r Role) Scopes() Scopes {
	switch r {
	case Owner:
		return allScopes
	case Admin:
		return allScopes &^ NewScopes(OwnersWrite)
	case Member:
		return allScopes &^ NewScopes(OwnersWrite, MembersWrite, AuditRead)
	case Viewer:
		return readScopes
	}
	return 0
}
