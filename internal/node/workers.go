package node

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/imports"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/node/resources"
	"github.com/postrider/postrider/internal/outbound/alarms"
	"github.com/postrider/postrider/internal/outbound/eventstream"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/outbound/notifications"
	"github.com/postrider/postrider/internal/outbound/privacy"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/outbound/retention"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/platform/nodelimits"
	"github.com/postrider/postrider/internal/platform/partitions"
	"github.com/postrider/postrider/internal/sending/delivery"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
	"github.com/postrider/postrider/internal/sending/dmarcreports"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
	"github.com/postrider/postrider/internal/sending/tlsreports"
	"github.com/postrider/postrider/internal/sending/tracking"
)

// cachedAnswers is the maximum number of DNS answers that a node caches.
const cachedAnswers = 50_000

// captureTopic is the topic of hints about captured messages. Their payload is the message's id.
const captureTopic = "outbox"

// workers holds the services that act when a job is due, an event is recorded or a message arrives.
type workers struct {
	Notifications *notifications.Service
	Webhooks      *webhooks.Service
	Broadcasts    *broadcasts.Service
	Automations   *automations.Service
	Delivery      *delivery.Service
	Outbox        *capture.Outbox
	Receiving     *receiving.Service
	Forwards      *forwards.Service
	EventStream   *eventstream.Service
	Imports       *imports.Service
	Tracking      *tracking.Service
	RequestLog    *requestlog.Service
	Privacy       *privacy.Service
	TLSPolicies   *tlspolicies.Service
	TLSReports    *tlsreports.Service
	DMARCReports  *dmarcreports.Service
	Exports       *exports.Service
	Alarms        *alarms.Service // nil unless alert_to is set

	nameServer nameServer

	runner *jobs.Runner
	shares *nodelimits.Shares // this node's shares of the limits that are divided among all nodes with the same database
}

// hooks returns the functions that resources use to call workers. Each hook looks up its worker at the time of the
// call, because workers are built after the resources. Commands do not send emails to users; they print links for the
// operator instead.
func (n *Node) hooks() resources.Hooks {
	h := resources.Hooks{
		Notify: func(ctx context.Context, tx *db.Tx, teamID, subject, text string) error {
			return n.Notifications.Notify(ctx, tx, teamID, subject, text)
		},
		BeforeEvent: func(ctx context.Context, teamID, event, contactID string) error {
			return n.Automations.LoadWaiting(ctx, teamID, event, contactID)
		},
		OnSenderStop: func(ctx context.Context, tx *db.Tx, teamID string, by teams.ActorRef) error {
			return n.Broadcasts.OnSenderStop(ctx, tx, teamID, by)
		},
		OnGrantStop: func(ctx context.Context, tx *db.Tx, teamID, grantID string) error {
			return n.Automations.StopOfApp(ctx, tx, teamID, grantID)
		},
		OnDomainLost: func(ctx context.Context, tx *db.Tx, teamID, name string) error {
			return n.Broadcasts.OnDomainLost(ctx, tx, teamID, name)
		},
		OnDomainBack: func(ctx context.Context, tx *db.Tx, teamID, name string) error {
			return n.Broadcasts.OnDomainBack(ctx, tx, teamID, name)
		},
		OnEvent: func(ctx context.Context, tx *db.Tx, o customevents.Occurrence) error {
			return n.Automations.OnEvent(ctx, tx, o)
		},
		Decision: func(ctx context.Context, teamID, broadcastID, contentID string) (emails.Decision, error) {
			return n.Broadcasts.CachedDecision(ctx, teamID, broadcastID, contentID)
		},
		FetchPolicy: func(ctx context.Context, domain string) (mtasts.Policy, mtasts.Result, string) {
			return n.TLSPolicies.Probe(ctx, domain)
		},
		MailCertificate: n.mailCertificate,
		Held:            func(domain string) (reason string, since time.Time, held bool) { return n.Delivery.Held(domain) },
	}
	if n.metrics != nil {
		h.OnAccept = n.observeAccepted
	}
	if n.Config.NoticeFrom != "" && !n.o.Beside {
		h.Mail = func(ctx context.Context, tx *db.Tx, to, subject, text string) error {
			return n.Notifications.Mail(ctx, tx, to, subject, text)
		}
	}
	return h
}

// newWorkers builds the workers. The event recorder calls its listeners in the order in which newWorkers registers
// them.
func (n *Node) newWorkers(h resources.Hooks) (err error) {
	c := n.Config
	n.dns = resolve.NewCached(n.DNS, cachedAnswers)
	n.runner = jobs.NewRunner(n.DB, n.Queue, n.Log, c.ShutdownGrace)
	if n.metrics != nil {
		n.runner.Observe = n.metrics.Job
	}
	n.shares = nodelimits.New(n.DB, n.runner.Node(), n.Log, 0)
	n.runner.OnNodes(n.shares.Live)
	n.limits = &teams.Limiter{Shares: n.shares}
	n.Recorder.Listen(n.Metrics)
	n.Notifications = notifications.New(notifications.Config{From: c.NoticeFrom, OperatorTeam: c.OperatorTeam}, n.DB,
		n.Queue, n.Emails, n.Teams, n.Log)
	for _, build := range []func(resources.Hooks) error{n.newWebhooks, n.newBroadcasts, n.newAutomations,
		n.newTLSPolicies, n.newReports, n.newDelivery, n.newReceiving, n.newForwards, n.newImports, n.newPrivacy, n.newNameServer} {
		if err := build(h); err != nil {
			return err
		}
	}
	n.EventStream = eventstream.New(n.DB, n.Log, func(ctx context.Context, tx *db.Tx, e *events.Event) (
		m eventstream.Message, err error) {
		m.Type = e.Type
		m.ID, m.Payload, err = n.Webhooks.Render(ctx, tx, e)
		return m, err
	})
	n.Recorder.Listen(n.EventStream)
	n.Tracking = tracking.New(n.DB, n.Recorder, n.Emails, n.Log)
	n.RequestLog = requestlog.New(n.DB, n.Log)
	n.Exports = exports.New(n.Contacts, n.Emails, n.Suppressions, n.RequestLog, n.Audit)
	return n.newAlarms()
}

func (n *Node) newWebhooks(h resources.Hooks) (err error) {
	c := n.Config
	n.Webhooks, err = webhooks.New(webhooks.Config{Schedule: c.WebhookSchedule, DisableAfter: c.WebhookDisableAfter,
		AllowHTTP: c.AllowLoopback, UserAgent: "Postrider-Webhooks/" + n.o.Version},
		webhooks.Deps{DB: n.DB, Queue: n.Queue, Keys: n.Keys, Guard: n.Guard, Domains: n.Domains, Log: n.Log,
			Notify: h.Notify, Observe: n.observeWebhook()})
	if err == nil {
		n.Recorder.Listen(n.Webhooks)
	}
	return err
}

func (n *Node) newBroadcasts(h resources.Hooks) (err error) {
	c := n.Config
	n.Broadcasts, err = broadcasts.New(broadcasts.Config{MaxSize: int64(c.AttachmentMax),
		BounceLimit: c.BroadcastBounceLimit, ComplaintLimit: c.BroadcastComplaintLimit},
		broadcasts.Deps{DB: n.DB, Queue: n.Queue, Recorder: n.Recorder, Emails: n.Emails, Contents: n.Contents,
			Domains: n.Domains, Contacts: n.Contacts, Teams: n.Teams, Log: n.Log, Notify: h.Notify})
	if err == nil {
		n.Recorder.Listen(n.Broadcasts)
	}
	return err
}

func (n *Node) newAutomations(resources.Hooks) (err error) {
	n.Automations, err = automations.New(automations.Deps{DB: n.DB, Queue: n.Queue, Domains: n.Domains, Emails: n.Emails,
		Templates: n.Templates, Contacts: n.Contacts, Teams: n.Teams, Log: n.Log,
		CheckURL: func(field, url string) (string, error) { return n.Webhooks.CheckURL(field, url) },
		Call: func(ctx context.Context, teamID, id, url string, headers map[string]string, body []byte) (int, error) {
			return n.Webhooks.Call(ctx, teamID, id, url, headers, body)
		}})
	if err == nil {
		n.Recorder.Listen(n.Automations)
	}
	return err
}

// newTLSPolicies builds the service for the policies of recipient domains. Their web servers must have public
// addresses, even if the operator opens other networks to webhooks.
func (n *Node) newTLSPolicies(resources.Hooks) (err error) {
	n.strangers = publicGuard(n.Config)
	n.TLSPolicies, err = tlspolicies.New(tlspolicies.Config{Port: n.Config.MTASTSPort}, tlspolicies.Deps{DB: n.DB, DNS: n.dns, Fresh: n.DNS,
		Guard: n.strangers, Log: n.Log})
	return err
}

func (n *Node) newDelivery(resources.Hooks) (err error) {
	c := n.Config
	n.Outbox = capture.New(n.Blobs, func(captureID string) { n.DB.Hint(captureTopic, captureID) })
	n.DB.OnHint(captureTopic, n.Outbox.Hear)
	n.DB.OnListening(n.Outbox.Resync)
	routes := n.deliveryRoutes()
	obeyed := n.TLSPolicies
	if !c.MTASTS {
		obeyed = nil
	}
	n.Delivery, err = delivery.New(delivery.Config{Transport: c.Transport, Hostname: c.Hostname, Relays: routes.Relays,
		Destinations: routes.Destinations, SMTPPort: c.SMTPPort, Schedule: routes.Schedule, Workers: c.DeliveryWorkers,
		Signers: c.Signers, ComplaintAddress: complaintAddress(c),
		LaneConnections: c.LaneConcurrency, LaneRate: routes.LaneRate, MaxConnections: c.ConnectionsMax,
		SandboxDomains: c.SandboxDomains, Unsigned: n.o.Unsigned, AllowPrivate: n.o.Loopback, OwnHosts: n.takenElsewhere(),
		DANE: n.obeysDANE()},
		delivery.Deps{DB: n.DB, Queue: n.Queue, Recorder: n.Recorder, Emails: n.Emails, Domains: n.Domains, Keys: n.Keys,
			DNS: n.dns, TLSPolicies: obeyed, Blobs: n.Blobs, Outbox: n.Outbox, Guard: n.Guard, Shares: n.shares, Log: n.Log,
			Broadcasts: n.Broadcasts, Observe: n.observeDelivery(), Sessions: n.countSessions(),
			OnLimitRaised: func(group string) { n.runner.LimitRaised(emails.DeliveryKind, group) }})
	return err
}

// complaintAddress returns the address for complaints that bulk mail names, or "".
func complaintAddress(c config.Config) string {
	if !c.CFBL || len(c.FeedbackAddresses) == 0 {
		return ""
	}
	return c.FeedbackAddresses[0]
}

func (n *Node) newImports(resources.Hooks) (err error) {
	n.Imports, err = imports.New(imports.Config{MaxSize: int64(n.Config.ImportMaxSize),
		Retention: n.Config.ImportRetention},
		imports.Deps{DB: n.DB, Queue: n.Queue, Blobs: n.Blobs, Contacts: n.Contacts, Log: n.Log})
	return err
}

func (n *Node) newPrivacy(resources.Hooks) (err error) {
	n.Privacy, err = privacy.New(privacy.Deps{DB: n.DB, Queue: n.Queue, Contacts: n.Contacts, Emails: n.Emails,
		Suppressions: n.Suppressions, Erasers: n.AddressErasers(), Received: n.receivedFrom, Broadcasts: n.broadcastsTo,
		Automations: n.runsOf})
	return err
}

// Keeps returns the default retention periods, which apply to teams without their own settings.
func (n *Node) Keeps() teams.Retention {
	c := n.settings()
	return teams.Retention{Emails: c.EmailRetention, Bodies: c.BodyRetention, Received: c.ReceivedRetention,
		Events: c.EventRetention}
}

// Retention returns the service that deletes expired data. The function now is the service's clock.
func (n *Node) Retention(now func() time.Time) *retention.Service {
	bodies := func(r teams.Retention) time.Duration { return r.Bodies }
	emails := func(r teams.Retention) time.Duration { return r.Emails }
	received := func(r teams.Retention) time.Duration { return r.Received }
	// Forwarded emails are sent emails too, and the list of them is deleted with them.
	copies := func(r teams.Retention) time.Duration {
		return min(cmp.Or(r.Received, r.Emails), cmp.Or(r.Emails, r.Received))
	}
	events := func(r teams.Retention) time.Duration { return r.Events }
	s := retention.New(n.Keeps(), n.Teams, now,
		retention.Rule{Name: "emails", Period: emails, Step: n.Emails.RemoveBefore,
			Dropped: partitions.Emails},
		retention.Rule{Name: "bodies", Period: bodies, Step: n.Emails.RemoveBodies},
		retention.Rule{Name: "skipped bodies", Period: bodies, Step: n.Emails.RemoveSkippedBodies},
		retention.Rule{Name: "received emails", Period: received, Step: n.Receiving.RemoveBefore},
		retention.Rule{Name: "forwarded emails", Period: copies, Step: n.Forwards.RemoveBefore},
		retention.Rule{Name: "recipients of broadcasts", Period: events, Step: n.Broadcasts.RemoveRecipients},
		retention.Rule{Name: "runs of automations", Period: events, Step: n.Automations.RemoveRuns},
		retention.Rule{Name: "timelines", Period: events, Step: n.Emails.RemoveTimelines},
		retention.Rule{Name: "entries of the request log", Step: n.RequestLog.RemoveBefore, Dropped: partitions.RequestLogs,
			Period: func(teams.Retention) time.Duration { return n.settings().LogRetention }},
		retention.Rule{Name: "webhook messages", Step: n.Webhooks.RemoveBefore, Dropped: partitions.Webhooks,
			Period: func(teams.Retention) time.Duration { return n.settings().WebhookRetention }})
	if n.DB.Alone() {
		return s
	}
	return s.DropBy(retention.Drops{Partitions: n.Partitions(), Log: n.Log, Families: []retention.Drop{
		{Family: partitions.Emails, Setting: "email_retention", Longest: s.LongestOfEmails, Prepare: n.prepareDrop},
		{Family: partitions.RequestLogs, Setting: "log_retention", Longest: retention.Same(n.settings().LogRetention)},
		{Family: partitions.Webhooks, Setting: "webhook_retention", Longest: retention.Same(n.settings().WebhookRetention),
			Prepare: n.prepareWebhookDrop}}})
}

// prepareWebhookDrop keeps deliveries that are not finished. They are found in the transaction that drops the
// partition, by an index that has only such deliveries.
func (n *Node) prepareWebhookDrop(ctx context.Context, _ partitions.Span) (
	keep func(tx *db.Tx, from, to string) ([]partitions.Kept, error), dropped func(ctx context.Context) error, err error) {
	keep = func(tx *db.Tx, from, to string) ([]partitions.Kept, error) {
		return n.Webhooks.Unsettled(ctx, tx.Reader, from, to)
	}
	return keep, func(context.Context) error { return nil }, nil
}

// prepareDrop examines the emails of a partition before it is dropped. The transaction that drops it keeps unsettled
// emails, and emails with events that are not counted.
func (n *Node) prepareDrop(ctx context.Context, span partitions.Span) (
	keep func(tx *db.Tx, from, to string) ([]partitions.Kept, error), dropped func(ctx context.Context) error, err error) {
	survey, err := n.Emails.Survey(ctx, span.From, span.To)
	if err != nil {
		return nil, nil, err
	}
	keep = func(tx *db.Tx, from, to string) ([]partitions.Kept, error) {
		ids, err := n.Metrics.Release(ctx, tx, from, to, survey.Unsettled)
		if err != nil {
			return nil, err
		}
		teams, err := n.Emails.KeptTeams(ctx, tx.Reader, survey, ids)
		if err != nil {
			return nil, err
		}
		// An email that is settled and has no events is dropped with all its rows, because rows must not outlive their
		// email.
		ids = slices.DeleteFunc(ids, func(x string) bool { return teams[x] == "" })
		n.Emails.ForgetSkipped(ctx, tx, survey, ids)
		kept := make([]partitions.Kept, len(ids))
		for i, x := range ids {
			kept[i] = partitions.Kept{Owner: teams[x], ID: x}
		}
		return kept, nil
	}
	return keep, func(ctx context.Context) error { return n.Emails.Removed(ctx, survey) }, nil
}

// Partitions returns the service that makes and drops partitions.
func (n *Node) Partitions() *partitions.Service {
	return partitions.New(n.DB, partitions.Length(n.Config.PartitionBy), n.Log)
}

func tlsMode(name string) smtpclient.TLSMode {
	switch name {
	case "required":
		return smtpclient.TLSRequired
	case "implicit":
		return smtpclient.TLSImplicit
	case "none":
		return smtpclient.TLSNone
	}
	return smtpclient.TLSOpportunistic
}

// ownAddresses returns the addresses of this node's listeners. URLs that users configure, such as webhook endpoints,
// must not reach them, even if they are in a network of allow_networks. With allow_loopback, such URLs may reach the
// listeners, so ownAddresses returns nil.
func ownAddresses(c config.Config) (all []netip.AddrPort, err error) {
	if c.AllowLoopback {
		return nil, nil
	}
	listeners := [][2]string{{"http_listen", c.HTTPListen}, {"https_listen", c.HTTPSListen},
		{"metrics_listen", c.MetricsListen}, {"smtp_in_listen", c.SMTPInListen},
		{"smtp_submit_listen", c.SMTPSubmitListen}, {"smtp_submits_listen", c.SMTPSubmitsListen}}
	if slices.Contains(c.Roles, "dns") {
		for _, address := range c.DNSListen {
			listeners = append(listeners, [2]string{"dns_listen", address})
		}
	}
	for _, l := range listeners {
		if l[1] == "" {
			continue
		}
		addr, err := net.ResolveTCPAddr("tcp", l[1])
		if err != nil {
			return nil, fmt.Errorf("find the address of %s: %w", l[0], err)
		}
		at := addr.AddrPort()
		if !at.Addr().IsValid() { // as in :8080
			at = netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())
		}
		all = append(all, at)
	}
	return all, nil
}

// networks returns the operator's exceptions for addresses that users supply.
func networks(c config.Config) netguard.Networks {
	return netguard.Networks{Allow: c.AllowNetworks, Deny: c.DenyNetworks}
}

// trackingHosts returns the host names of the public URL and the tracking URL. A reverse proxy may obtain certificates
// for these host names, as it may for the tracking hosts of domains.
func trackingHosts(c config.Config) (all []string) {
	for _, text := range []string{c.PublicURL, c.TrackingURL} {
		if u, err := url.Parse(text); err == nil && u.Hostname() != "" {
			all = append(all, strings.ToLower(u.Hostname()))
		}
	}
	return all
}
