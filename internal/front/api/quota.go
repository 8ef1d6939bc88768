package api

import (
	"context"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
)

// hasQuotaHeaders reports whether responses to an operation have quota headers, which is the case for operations that
// send emails.
func hasQuotaHeaders(o *wire.Operation) bool {
	return o.Scope == teams.EmailsSend || o.Scope == teams.ApprovalsRequest
}

// addQuotaHeaders adds the team's usage to the response to an operation that sends emails (API reference section 5.2).
// If the quota is exceeded, addQuotaHeaders also adds the time until the quota resets. No header is added if the team
// has no quota or if its usage cannot be read.
func (a *API) addQuotaHeaders(ctx context.Context, c *wire.Call, failure error) {
	if !hasQuotaHeaders(c.Operation) {
		return
	}
	u, err := a.Services.Quotas.Usage(ctx, c.TeamID)
	if err != nil {
		a.Log.Warn("could not read the usage of a team", "team", c.TeamID, "error", err)
		return
	}
	if u.Daily > 0 {
		c.Header.Set("X-Resend-Daily-Quota", strconv.FormatInt(u.Day, 10))
	}
	if u.Monthly > 0 {
		c.Header.Set("X-Resend-Monthly-Quota", strconv.FormatInt(u.Month, 10))
	}
	if quotas.Exceeded(failure) {
		now := a.Services.Metrics.Now()
		wait := quotas.Resets(fault.KindOf(failure), now).Sub(now)
		c.Header.Set("Retry-After", strconv.Itoa(int(wait.Seconds())+1))
	}
}

// quotaHeaders describes the headers that addQuotaHeaders adds.
func quotaHeaders() map[string]*huma.Header {
	of := func(period string) *huma.Header {
		return &huma.Header{Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: new(0.0)},
			Description: "Emails of this " + period + " that count for the team's quota, sent and received. " +
				"Absent if the team has no such quota."}
	}
	return map[string]*huma.Header{"x-resend-daily-quota": of("day"), "x-resend-monthly-quota": of("month")}
}
