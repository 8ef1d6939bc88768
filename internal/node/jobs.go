package node

import (
	"context"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// reportCron registers the job that sends reports. On nodes that send none, the job has another name and deletes old
// ones, so that it does not take the turn of a node that sends reports.
func (n *Node) reportCron(name string, sends bool, run func(context.Context) error) {
	if !sends {
		name = "old " + name
	}
	n.runner.Cron(jobs.Cron{Name: name, Every: 5 * time.Minute, Run: run})
}

// registerJobs registers the job kinds and recurring jobs that belong to this node's roles.
func (n *Node) registerJobs() {
	if n.Has("delivery") {
		n.runner.Handle(n.Delivery.Kind())
		// Only nodes that send mail have the addresses and the network for it.
		n.reportCron("tls reports", sendsTLSReports(n.Config), n.TLSReports.Send)
		n.reportCron("dmarc reports", sendsDMARCReports(n.Config), n.DMARCReports.Send)
	}
	if n.Has("jobs") {
		n.runner.Handle(n.Domains.Kind())
		n.runner.Handle(n.Domains.RotationKind())
		n.runner.Handle(n.Notifications.Kind())
		n.runner.Handle(n.Imports.JobKind())
		n.runner.Handle(n.Privacy.Kind())
		for _, k := range slices.Concat(n.Emails.Kinds(), n.Broadcasts.Kinds(), n.Automations.Kinds(), n.Webhooks.Kinds(),
			n.Forwards.Kinds()) {
			n.runner.Handle(k)
		}
		n.runner.Handle(n.Teams.EraseJobs(n.Queue, n.TeamErasers()...))
		if n.Alarms != nil {
			n.runner.Handle(n.Alarms.Jobs())
			n.runner.Cron(jobs.Cron{Name: "alarms", Every: alarmEvery, Run: n.watchInstallation})
		}
		for _, c := range n.crons() {
			n.runner.Cron(c)
		}
		n.examineDaily()
	}
	for kind := range n.runner.Running() {
		n.metrics.Kind(kind)
	}
}

// TeamErasers returns the functions that delete a deleted team's rows, in the order in which the functions are called.
// Jobs are deleted first, so that no new work begins. Counters are deleted after the events that they count, and
// imports are deleted before the contacts that they write.
func (n *Node) TeamErasers() []teams.Eraser {
	return []teams.Eraser{n.Queue.EraseTeam, n.Domains.EraseTeam, n.ServedPolicies.EraseTeam, n.Reports.EraseTeam,
		n.Webhooks.EraseTeam, n.Emails.EraseTeam,
		n.Broadcasts.EraseTeam, n.Automations.EraseTeam,
		n.Templates.EraseTeam, n.Contents.EraseTeam, n.Receiving.EraseTeam, n.Forwards.EraseTeam, n.Suppressions.EraseTeam,
		n.EventStream.EraseTeam, n.Metrics.EraseTeam, n.Quotas.EraseTeam, n.Imports.EraseTeam, n.Contacts.EraseTeam,
		n.CustomEvents.EraseTeam, n.Privacy.EraseTeam,
		n.RequestLog.EraseTeam, n.Approvals.EraseTeam, n.Grants.EraseTeam, n.SavedFilters.EraseTeam,
		n.ExportRuns.EraseTeam,
		n.Members.EraseTeam, n.Audit.EraseTeam}
}

// parts is the number of parts into which the work for all teams is divided by ranges of teams, so that nodes share it.
const parts = 16

// crons returns the recurring jobs. Each recurring job, or each of its parts, runs on one node at a time.
func (n *Node) crons() []jobs.Cron {
	return []jobs.Cron{
		{Name: "webhooks", Every: time.Hour, Parts: parts, RunPart: n.Webhooks.SweepPart},
		{Name: "idempotency", Every: time.Hour, Run: n.Emails.Sweep},
		{Name: "metrics", Every: time.Minute, Parts: parts, RunPart: n.Metrics.RollUpPart},
		{Name: "search", Every: time.Minute, Parts: parts, RunPart: n.Emails.Index.UpdatePart},
		{Name: "live", Every: 5 * time.Minute, Run: n.EventStream.Sweep},
		{Name: "audit", Every: time.Hour, Run: n.Audit.Sweep},
		{Name: "approvals", Every: time.Minute, Run: n.Approvals.Sweep},
		{Name: "oauth", Every: time.Hour, Run: n.Grants.Sweep},
		{Name: "users", Every: time.Hour, Run: n.Users.Sweep},
		{Name: "invitations", Every: 24 * time.Hour, Run: n.Members.Sweep},
		{Name: "attachments", Every: 6 * time.Hour, Run: n.Emails.SweepFiles},
		{Name: "templates", Every: time.Hour, Run: n.Templates.Sweep},
		{Name: "contents", Every: time.Hour, Parts: parts, RunPart: n.Emails.SweepContentsPart},
		{Name: "contacts", Every: time.Hour, Run: n.Contacts.Sweep},
		{Name: "automations", Every: time.Hour, Run: n.Automations.Sweep},
		{Name: "imports", Every: time.Hour, Run: n.Imports.Sweep},
		{Name: "erasures", Every: 24 * time.Hour, Run: n.Privacy.Sweep},
		{Name: "forwards", Every: 24 * time.Hour, Run: n.Forwards.Sweep},
		{Name: "received", Every: 6 * time.Hour, Run: n.Receiving.Sweep},
		{Name: "retention", Every: 15 * time.Minute, Parts: parts, RunPart: func(ctx context.Context, p jobs.Part) error {
			return n.Retention(n.DB.Now).RunPart(ctx, p) // with the settings of that time
		}},
		{Name: "partitions", Every: 15 * time.Minute, Run: func(ctx context.Context) error {
			return n.Retention(n.DB.Now).Partition(ctx)
		}},
		{Name: "domain reports", Every: time.Hour, Run: n.Reports.Sweep},
		{Name: "domains", Every: 10 * time.Minute, Run: n.Domains.Recheck},
		{Name: "served policies", Every: time.Minute, Run: n.ServedPolicies.Check},
		{Name: "dkim keys", Every: 10 * time.Minute, Run: n.Domains.ExamineKeys},
		{Name: "tls policies", Every: 15 * time.Minute, Run: n.TLSPolicies.Refresh},
	}
}
