package api

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/front/api/wire"
)

// usageWire is a team's usage (API reference section 25). A null limit means that there is no limit.
type usageWire struct {
	Object      string       `json:"object"`
	GeneratedAt wire.ISOTime `json:"generated_at"`
	Emails      struct {
		Daily   emailUsage `json:"daily"`
		Monthly emailUsage `json:"monthly"`
	} `json:"emails"`
	Contacts       usageOf     `json:"contacts"`
	Segments       usageOf     `json:"segments"`
	Broadcasts     usageOf     `json:"broadcasts" doc:"Started broadcasts, including canceled and failed ones, up to 100,000."`
	AICredits      creditUsage `json:"ai_credits"`
	AutomationRuns runUsage    `json:"automation_runs"`
	Domains        usageOf     `json:"domains"`
	RateLimit      rateUsage   `json:"rate_limit"`
	// ManagedDomain and Grant are extensions to the API reference.
	ManagedDomain *string     `json:"managed_domain" doc:"The team receives email for any address at this domain; null if the operator has not configured one."`
	Grant         *grantUsage `json:"grant" doc:"The sending limits and usage of the OAuth client that makes the request; null for an API key."`
}

// grantUsage contains a grant's sending limits and the number of emails that its OAuth client has sent.
type grantUsage struct {
	ID       string       `json:"id"`
	Limits   grantLimits  `json:"limits" doc:"The limits that a user has set for the OAuth client."`
	Used     *int64       `json:"used" nullable:"true" doc:"Emails sent on this UTC day, counted per recipient. Null if there is no daily limit, because nothing is counted then."`
	ResetsAt wire.ISOTime `json:"resets_at"`
}

type usageOf struct {
	Used  int  `json:"used"`
	Limit *int `json:"limit"`
}

type emailUsage struct {
	Used     int          `json:"used" doc:"Sent and received emails, counted per recipient. With a limit, accepted emails that are not sent yet count too."`
	Limit    *int         `json:"limit"`
	Sent     int          `json:"sent"`
	Received int          `json:"received"`
	ResetsAt wire.ISOTime `json:"resets_at"`
}

type creditUsage struct {
	Used           int           `json:"used"`
	Limit          *int          `json:"limit"`
	NextIncreaseAt *wire.ISOTime `json:"next_increase_at"`
}

type runUsage struct {
	Used     int          `json:"used" doc:"Runs that began in this UTC month and are still stored, up to 100,000."`
	Limit    *int         `json:"limit"`
	ResetsAt wire.ISOTime `json:"resets_at"`
}

type rateUsage struct {
	Limit    *int   `json:"limit"`
	Duration string `json:"duration"`
}

func (a *API) usage(ctx context.Context, c *wire.Call, _ wire.None) (usageWire, error) {
	now := a.Services.Metrics.Now()
	y, m, d := now.Date()
	month, nextMonth := time.Date(y, m, 1, 0, 0, 0, 0, time.UTC), time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
	out := usageWire{Object: "usage", GeneratedAt: wire.ISOTime(now), RateLimit: rateUsage{Duration: "1000ms"}}
	out.AutomationRuns.ResetsAt = wire.ISOTime(nextMonth)
	var err error
	if out.Emails.Daily, err = a.emailUsage(ctx, c, time.Date(y, m, d, 0, 0, 0, 0, time.UTC), time.Date(y, m, d+1, 0, 0, 0,
		0, time.UTC)); err != nil {
		return out, err
	}
	if out.Emails.Monthly, err = a.emailUsage(ctx, c, month, nextMonth); err != nil {
		return out, err
	}
	quota, err := a.Services.Quotas.Usage(ctx, c.TeamID)
	if err != nil {
		return out, err
	}
	out.Emails.Daily.setQuota(quota.Day, quota.Daily)
	out.Emails.Monthly.setQuota(quota.Month, quota.Monthly)
	if out.Domains.Used, err = a.Services.Domains.Count(ctx, c.TeamID); err != nil {
		return out, err
	}
	audience, err := a.Services.Contacts.Usage(ctx, c.TeamID)
	if err != nil {
		return out, err
	}
	if out.Broadcasts.Used, err = a.Services.Broadcasts.CountStarted(ctx, c.TeamID); err != nil {
		return out, err
	}
	if out.AutomationRuns.Used, err = a.Services.Automations.CountRuns(ctx, c.TeamID, month); err != nil {
		return out, err
	}
	out.Contacts.Used, out.Segments = audience.Contacts, usageOf{audience.Segments, new(segments.Max)}
	if limit := a.TeamRateLimit(&c.Actor); limit > 0 {
		out.RateLimit.Limit = &limit
	}
	out.ManagedDomain = orNull(a.Services.Receiving.ManagedHost(c.TeamID))
	out.Grant, err = a.grantUsage(ctx, c, out.Emails.Daily.ResetsAt)
	return out, err
}

// grantUsage returns the usage of the OAuth client that makes the request, or nil for other actors.
func (a *API) grantUsage(ctx context.Context, c *wire.Call, resets wire.ISOTime) (*grantUsage, error) {
	if c.Kind != teams.GrantActor {
		return nil, nil
	}
	u, err := a.Services.Grants.Usage(ctx, c.TeamID, c.Actor.ID)
	if err != nil {
		return nil, err
	}
	w := &grantUsage{ID: c.Actor.ID, Limits: grantLimitsOf(u.Limits), ResetsAt: resets}
	if u.Emails > 0 {
		w.Used = &u.Sent
	}
	return w, nil
}

func (a *API) emailUsage(ctx context.Context, c *wire.Call, from, to time.Time) (emailUsage, error) {
	u, err := a.Services.Metrics.Usage(ctx, c.TeamID, from, to)
	return emailUsage{Used: u.Sent + u.Received, Sent: u.Sent, Received: u.Received, ResetsAt: wire.ISOTime(to)}, err
}

// setQuota sets the usage and the limit if the team has a quota. Usage that counts against a quota includes emails that
// have been accepted but not yet sent.
func (u *emailUsage) setQuota(used, quota int64) {
	if quota > 0 {
		u.Used, u.Limit = int(used), new(int(quota))
	}
}
