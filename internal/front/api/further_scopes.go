package api

import "github.com/postrider/postrider/internal/accounts/teams"

// furtherScopes holds the scopes that operations always need besides the one in the table of routes. The operations'
// functions check them. Scopes that depend on the request are described in the reference.
var furtherScopes = map[string][]teams.Scope{
	"POST /broadcasts/{broadcast_id}/test": {teams.EmailsSend},
	"GET /contacts/{contact}/export":       exportedKinds,
	"POST /contacts/{contact}/erase":       {teams.EmailsWrite},
	// A forwarding rule discloses received mail to others.
	"POST /domains/{domain_id}/forwards":               {teams.ReceivingRead},
	"PATCH /domains/{domain_id}/forwards/{forward_id}": {teams.ReceivingRead},
}

// exportedKinds are the scopes for the data in the export about an address, besides contacts:read.
var exportedKinds = []teams.Scope{teams.EmailsRead, teams.ReceivingRead, teams.SuppressionsRead, teams.BroadcastsRead,
	teams.AutomationsRead}

// refusesApps holds the operations that refuse OAuth clients, even those with full access.
var refusesApps = map[string]bool{
	"POST /approvals/{approval_id}/approve": true,
	"POST /approvals/{approval_id}/reject":  true,
	"PATCH /oauth/grants/{oauth_grant_id}":  true,
}
