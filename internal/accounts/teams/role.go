package teams

// Role is what a member may do in a team.
type Role string

const (
	Owner  Role = "owner"  // everything
	Admin  Role = "admin"  // everything but to make and remove owners
	Member Role = "member" // works with emails, domains, webhooks and contacts; neither members nor full-access keys
	Viewer Role = "viewer" // reads what is no secret
)

// Roles are all roles, the one with the most rights first.
var Roles = []Role{Owner, Admin, Member, Viewer}

// readScopes are those that neither change anything nor show a secret.
var readScopes = NewScopes(EmailsRead, ReceivingRead, DomainsRead, KeysRead, SuppressionsRead, WebhooksRead, LogsRead,
	UsageRead, TemplatesRead, ContactsRead, SegmentsRead, TopicsRead, BroadcastsRead, EventsRead, AutomationsRead,
	MembersRead, GrantsRead, ApprovalsRead)

// Scopes returns what members with the role may do. A role unknown to this release has no scopes.
//
// A member creates keys, but none that could do more than the member (see [Service.CreateKey]): a full-access key takes
// an admin.
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
