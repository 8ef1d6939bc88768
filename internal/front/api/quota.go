package api

import (
	"context"
	"strconv"

	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
)

// showsQuota reports whether answers of the operation say how much of the quotas is used: those of what sends.
func (o *op) showsQuota() bool {
	return o.scope == teams.EmailsSend || o.scope == teams.ApprovalsRequest
}

// showQuota adds to the answer of a request that sends how much the team has used of its quotas (API reference section
// 5.2), and to a refusal when the quota begins anew. Without a quota it adds nothing. What has been done is answered
// also when the quota cannot be read.
func (a *API) showQuota(ctx context.Context, c *Call, refused error) {
	u, err := a.Services.Volume.Usage(ctx, c.TeamID)
	if err != nil {
		a.Log.Warn("could not read what a team has used of its quota", "team", c.TeamID, "error", err)
		return
	}
	if u.Daily > 0 {
		c.Header.Set("X-Resend-Daily-Quota", strconv.FormatInt(u.Day, 10))
	}
	if u.Monthly > 0 {
		c.Header.Set("X-Resend-Monthly-Quota", strconv.FormatInt(u.Month, 10))
	}
	if quotas.Exceeded(refused) {
		now := a.Services.Metrics.Now()
		wait := quotas.Resets(fault.KindOf(refused), now).Sub(now)
		c.Header.Set("Retry-After", strconv.Itoa(int(wait.Seconds())+1))
	}
}
