package cli

import (
	"context"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/teams"
)

// acts are the commands of verbs that are recorded in the audit log, if they change something.
var acts = map[string]string{
	"teams create":    "team.created",
	"teams rename":    "team.renamed",
	"teams suspend":   "team.suspended",
	"teams resume":    "team.resumed",
	"teams limit":     "team.limited",
	"teams retention": "team.retention_changed",
	"teams delete":    "team.deleted",
	"keys create":     "api_key.created",
	"keys delete":     "api_key.deleted",
}

// recorded returns a context by which the change that a command makes is recorded.
func recorded(ctx context.Context, command string) context.Context {
	return audit.With(ctx, audit.Entry{ActorKind: string(teams.SystemActor), Action: acts[command], Detail: "command"})
}
