package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/imports"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/front/api"
	"github.com/postrider/postrider/internal/front/links"
	"github.com/postrider/postrider/internal/front/mcp"
	"github.com/postrider/postrider/internal/front/oauth"
	"github.com/postrider/postrider/internal/front/signin"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/fileperm"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/outbound/eventstream"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/outbound/notifications"
	"github.com/postrider/postrider/internal/outbound/privacy"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/outbound/retention"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/platform/nodelimits"
	"github.com/postrider/postrider/internal/sending/approvals"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/delivery"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/metrics"
	"github.com/postrider/postrider/internal/sending/suppressions"
	"github.com/postrider/postrider/internal/sending/templates"
	"github.com/postrider/postrider/internal/sending/tracking"
)

// node is one running Postrider, with all parts built and connected.
type node struct {
	c           config.Config
	log         *slog.Logger
	db          *db.DB
	blobs       *blob.Store
	queue       *jobs.Queue
	runner      *jobs.Runner
	teams       *teams.Service
	users       *users.Service
	members     *members.Service
	site        *web.Site
	developer   *users.User // who visitors from this machine are, in development; nil otherwise
	audit       *audit.Log
	grants      *grants.Service
	approvals   *approvals.Service
	oauth       *oauth.Server
	mcp         *mcp.Server
	volume      *quotas.Service
	domains     *domains.Service
	contents    *content.Service
	contacts    *contacts.Service
	events      *customevents.Service
	templates   *templates.Service
	emails      *emails.Service
	delivery    *delivery.Service
	broadcasts  *broadcasts.Service
	automations *automations.Service
	receiving   *receiving.Service
	logs        *requestlog.Service
	live        *eventstream.Service
	imports     *imports.Service
	tracking    *tracking.Service
	privacy     *privacy.Service
	erasers     []teams.Eraser // of deleted teams
	handler     http.Handler
	mux         *http.ServeMux
	lock        *os.File
	certs       *certificates
	shares      *nodelimits.Shares // of the limits that nodes keep together
	limits      *teams.Limiter     // shared by the API and submission
	ports       []mailPort         // opened listeners, served by run
	measured    measured
}

// measured holds the differences of a node that bench measures.
type measured struct {
	unsigned bool // emails are not signed
	loopback bool // direct delivery may reach this machine
	trace    func(db.Statement)
}

func newLogger(c config.Config, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// databaseURL returns the database: by default the file in data_dir.
func databaseURL(c config.Config) string {
	if c.DatabaseURL == "" {
		return filepath.Join(c.DataDir, "postrider.db")
	}
	return string(c.DatabaseURL)
}

// openDB opens the configured database, for a command that may run beside a node.
func openDB(ctx context.Context, c config.Config, log *slog.Logger) (*db.DB, error) {
	return db.Open(ctx, db.Options{URL: databaseURL(c), Log: log, Beside: true})
}

// newNode builds a node. Close it when it has run.
func newNode(ctx context.Context, c config.Config, log *slog.Logger, m measured) (n *node, err error) {
	n = &node{c: c, log: log, measured: m}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if err := prepareFolder(c, log); err != nil {
		return n, err
	}
	if c.DatabaseURL == "" {
		if err := n.lockFolder(); err != nil {
			return n, err
		}
	}
	if n.db, err = db.Open(ctx, db.Options{URL: databaseURL(c), Log: log, Trace: m.trace}); err != nil {
		return n, err
	}
	if c.MigrateOnStart {
		if _, err := n.db.Migrate(ctx); err != nil {
			return n, err
		}
	}
	if err := n.checkOperator(ctx); err != nil {
		return n, err
	}
	if n.blobs, err = blob.Open(ctx, c.BlobURL); err != nil {
		return n, fmt.Errorf("open blob_url: %w", err)
	}
	keys, err := openKeyring(c)
	if err != nil {
		return n, err
	}
	dns, err := resolve.NewDNS(c.DNSServers)
	if err != nil {
		return n, fmt.Errorf("read dns_servers: %w", err)
	}
	return n, n.build(keys, dns)
}

// prepareFolder makes data_dir, and ensures that nobody else can read its content. It logs what others could read
// until now, because they may have.
func prepareFolder(c config.Config, log *slog.Logger) error {
	for _, name := range []string{"", "postrider.db", "secret.key", "dev.key", "lock"} {
		path := filepath.Join(c.DataDir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			log.Warn("others could read or change this until now; what it holds may be known to them", "path", path,
				"mode", fmt.Sprintf("%04o", info.Mode().Perm()))
		}
		if err := fileperm.Mend(path); err != nil {
			return fmt.Errorf("prepare data_dir: %w", err)
		}
	}
	if err := fileperm.Dir(c.DataDir); err != nil {
		return fmt.Errorf("prepare data_dir: %w", err)
	}
	return nil
}

// checkOperator refuses a configuration in which mail for the operator would have no recipient.
func (n *node) checkOperator(ctx context.Context) error {
	if n.c.OperatorTeam == "" {
		return nil
	}
	_, err := teams.New(n.db, n.log, nil).Operator(ctx, n.c.OperatorTeam)
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return fmt.Errorf("operator_team: there is no team with the id %s; `postrider teams list` shows those that are",
			n.c.OperatorTeam)
	}
	return err
}

func openKeyring(c config.Config) (*keyring.Keyring, error) {
	if c.SecretKey != "" {
		return keyring.Parse(string(c.SecretKey))
	}
	return keyring.LoadOrCreate(filepath.Join(c.DataDir, "secret.key"))
}

// lockFolder keeps a second node from an SQLite file: the job runner relies on being the only one.
func (n *node) lockFolder() error {
	path := filepath.Join(n.c.DataDir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the lock of data_dir: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return fmt.Errorf("another node uses the folder %s; stop it, or set database_url to share a PostgreSQL database",
			n.c.DataDir)
	}
	n.lock = f
	return nil
}

// build connects the parts, lowest layer first.
func (n *node) build(keys *keyring.Keyring, asked resolve.Resolver) error {
	c := n.c
	dns := resolve.NewCached(asked, 50_000)
	recorder := &events.Recorder{}
	n.queue = jobs.NewQueue(n.db)
	n.runner = jobs.NewRunner(n.db, n.queue, n.log, c.ShutdownGrace)
	guard := netguard.New(netguard.Options{AllowLoopback: c.AllowLoopback, DenySelf: ownAddresses(c)})

	regions := map[string]domains.Region{}
	for label := range c.Regions {
		regions[label] = domains.Region(c.Region(label))
	}
	n.domains = domains.New(domains.Config{Default: domains.Region(c.Region("")), Regions: regions,
		Selector:        c.DKIMSelector,
		SelectorEd25519: c.DKIMSelectorEd25519, CAAIssuer: c.CAAIssuer, SandboxDomains: c.SandboxDomains,
		SandboxSend:  c.SandboxSend,
		TrustDomains: c.TrustDomains, LegacyAliases: c.LegacyAliases, Hosts: publicHosts(c), ManagedDomain: c.ManagedDomain},
		n.db,
		n.queue, recorder, keys, asked, n.log) // Uncached: a user who has just published a record need not wait.
	n.shares = nodelimits.New(n.db, n.runner.Node(), n.log, 0)
	n.runner.OnNodes(n.shares.Live)
	n.limits = &teams.Limiter{Shares: n.shares}
	n.teams = teams.New(n.db, n.log, n.domains.Exists)
	n.teams.Trial = trial(c)
	n.audit = audit.New(n.db, c.AuditRetention)
	n.newUsers(keys)
	n.grants = n.newGrants(keys)
	n.volume = newVolume(n.db)
	suppressed := suppressions.New(n.db, recorder)
	n.contents = content.New(n.db)
	n.contacts = contacts.New(n.db, recorder, keys)
	n.contacts.Log = n.log
	n.events = customevents.New(n.db, n.contacts)
	n.templates = templates.New(n.db, n.contents, int64(c.AttachmentMax))
	n.emails = emails.New(emails.Config{MaxSize: int64(c.AttachmentMax), PublicURL: c.PublicURL,
		TrackingURL: c.TrackingURL}, emails.Parts{DB: n.db, Queue: n.queue, Recorder: recorder, Blobs: n.blobs, Keys: keys,
		Guard: guard, Domains: n.domains, Suppressions: suppressed, Teams: n.teams, Contents: n.contents,
		Contacts: n.contacts, Templates: n.templates, Volume: n.volume, Log: n.log})
	n.emails.Budget, n.emails.Affords = n.grants.ConsumeLimits, n.grants.CheckEach
	n.approvals = approvals.New(c.PublicURL, approvals.Parts{DB: n.db, Recorder: recorder, Emails: n.emails,
		Grants: n.grants, Members: n.members, Teams: n.teams, Audit: n.audit})
	n.domains.PendingScheduled = n.emails.HasScheduledFrom
	recorder.Listen(n.emails)
	recorder.Listen(suppressed)
	recorder.Listen(n.contacts)
	counters := metrics.New(n.db)
	recorder.Listen(counters)
	notify := notifications.New(notifications.Config{From: c.NoticeFrom, OperatorTeam: c.OperatorTeam}, n.db, n.queue, n.emails,
		n.teams, n.log)
	n.domains.Notify, n.volume.Notify = notify.Tell, notify.Tell
	if c.NoticeFrom != "" {
		n.members.Mail, n.users.Mail, n.approvals.Mail = notify.Mail, notify.Mail, notify.Mail
	}
	n.domains.SentSince = func(ctx context.Context, teamID, domainID string, since time.Time) (bool, error) {
		all, err := counters.Count(ctx, teamID, metrics.Query{From: since, To: n.db.Now(), DomainIDs: []string{domainID}})
		sent := func(c metrics.Count) bool { return c.Type == "sent" && c.Events > 0 }
		return slices.ContainsFunc(all, sent), err
	}
	hooks := webhooks.New(webhooks.Config{Schedule: c.WebhookSchedule, DisableAfter: c.WebhookDisableAfter,
		Retention: c.WebhookRetention,
		AllowHTTP: c.AllowLoopback, UserAgent: "Postrider-Webhooks/" + Version}, webhooks.Parts{DB: n.db, Queue: n.queue,
		Keys:  keys,
		Guard: guard, Domains: n.domains, Log: n.log, Notify: notify.Tell})
	recorder.Listen(hooks)

	n.broadcasts = broadcasts.New(broadcasts.Config{MaxSize: int64(c.AttachmentMax), BounceLimit: c.BroadcastBounceLimit,
		ComplaintLimit: c.BroadcastComplaintLimit}, broadcasts.Parts{DB: n.db, Queue: n.queue, Recorder: recorder,
		Emails: n.emails, Contents: n.contents, Contacts: n.contacts, Teams: n.teams, Log: n.log, Notify: notify.Tell})
	recorder.Listen(n.broadcasts)
	n.automations = automations.New(automations.Parts{DB: n.db, Queue: n.queue, Emails: n.emails, Templates: n.templates,
		Contacts: n.contacts, Teams: n.teams, Log: n.log, CheckURL: hooks.CheckURL, Call: hooks.Call})
	recorder.Listen(n.automations)
	n.events.Happened = n.automations.Happened
	n.contacts.Left = func(ctx context.Context, tx *db.Tx, l contacts.Link) error {
		return n.emails.RecordUnsubscribed(ctx, tx, l.TeamID, l.EmailID, l.Address)
	}

	n.delivery = delivery.New(delivery.Config{Transport: c.Transport, Hostname: c.Hostname, RelayAddr: c.RelayAddr,
		RelayUsername: c.RelayUsername, RelayPassword: string(c.RelayPassword), RelayTLS: tlsMode(c.RelayTLS),
		SMTPPort: c.SMTPPort,
		Schedule: c.RetrySchedule, Workers: c.DeliveryWorkers, Signers: c.Signers, LaneConnections: c.LaneConcurrency,
		LaneRate:       c.LaneRate,
		MaxConnections: c.ConnectionsMax, SandboxDomains: c.SandboxDomains, Unsigned: n.measured.unsigned,
		AllowPrivate: n.measured.loopback,
		OwnHosts:     n.takenElsewhere()}, delivery.Parts{DB: n.db, Queue: n.queue, Recorder: recorder,
		Emails: n.emails, Domains: n.domains, Keys: keys, DNS: dns, Blobs: n.blobs, Shares: n.shares, Log: n.log,
		Broadcasts: n.broadcasts,
		Grown:      func(group string) { n.runner.Grown(emails.DeliveryKind, group) }})

	var err error
	if n.receiving, err = n.newReceiving(recorder, keys, dns); err != nil {
		return err
	}

	n.live = eventstream.New(n.db, n.log, func(ctx context.Context, tx *db.Tx, e *events.Event) (m eventstream.Message, err error) {
		m.Type = e.Type
		m.ID, m.Payload, err = hooks.Render(ctx, tx, e)
		return m, err
	})
	recorder.Listen(n.live)

	n.imports = imports.New(imports.Config{MaxSize: int64(c.ImportMaxSize), Retention: c.ImportRetention},
		imports.Parts{DB: n.db, Queue: n.queue, Blobs: n.blobs, Contacts: n.contacts, Log: n.log})

	n.mux = http.NewServeMux()
	public := links.New(n.emails, n.receiving, n.log)
	public.Register(n.mux)
	public.RegisterUnsubscribe(n.mux, n.contacts, n.teams)
	n.servePages()
	n.mux.Handle("GET /tls/ask", links.TLSAsk(n.domains, n.log, trackingHosts(c)...))
	n.tracking = tracking.New(n.db, recorder, n.emails, n.log)
	tracked := links.NewTracked(n.emails, n.tracking)
	n.logs = requestlog.New(n.db, n.log, c.LogRetention)
	n.privacy = privacy.New(privacy.Parts{DB: n.db, Queue: n.queue, Contacts: n.contacts, Emails: n.emails,
		Suppressions: suppressed, Erasers: n.addressErasers(), Received: n.receivedFrom,
		Broadcasts: n.broadcastsTo, Automations: n.runsOf})
	var checked resolve.Resolver
	if !c.TrustDomains {
		checked = dns
	}
	rest := api.New(api.Options{Services: api.Services{Teams: n.teams, Domains: n.domains, Suppressions: suppressed,
		Emails: n.emails, Templates: n.templates, Volume: n.volume, Contacts: n.contacts, Broadcasts: n.broadcasts,
		Automations: n.automations, Events: n.events, Logs: n.logs, Metrics: counters, Live: n.live, Webhooks: hooks,
		Receiving: n.receiving, Imports: n.imports,
		Exports: exports.New(n.contacts, n.emails, suppressed, n.logs, n.audit), Privacy: n.privacy,
		Members: n.members, Audit: n.audit, Grants: n.grants, Approvals: n.approvals}, Log: n.log,
		Version: Version, PublicURL: c.PublicURL, Address: addressOf(c.PublicURL),
		RateLimit: c.RateLimit, Limits: n.limits, RequireUserAgent: c.RequireUserAgent, NoAliases: !c.LegacyAliases,
		Ready: n.ready, Observe: n.observe, DNS: checked})
	n.mcp = n.newMCP(rest, keys)
	n.oauth = n.newOAuth(n.site)
	development, pages := onlyLoopback(n.mux), byName(c.PublicURL, n.mux)
	n.handler = behindProxies(c.HTTPProxyFrom, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tracked.Serves(r.URL.Path) {
			tracked.ServeHTTP(w, r)
			return
		}
		// The mux redirects doubled slashes, and a redirect turns POST into GET: the API gets such paths unchanged.
		for _, prefix := range []string{"/download/", "/shared", "/unsubscribe/", "/tls/ask"} {
			if strings.HasPrefix(r.URL.Path, prefix) {
				n.mux.ServeHTTP(w, r)
				return
			}
		}
		if n.oauth.Serves(r.URL.Path) {
			n.oauth.ServeHTTP(w, r)
			return
		}
		if n.mcp.Serves(r.URL.Path) {
			n.mcp.ServeHTTP(w, r)
			return
		}
		if signin.Serves(r.URL.Path) {
			pages.ServeHTTP(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/dev/") {
			development.ServeHTTP(w, r)
			return
		}
		rest.ServeHTTP(w, r)
	}))

	// Jobs go first, so that no more work begins, counters after the events that they count, and imports before the
	// contacts that they write.
	n.erasers = []teams.Eraser{n.queue.EraseTeam, n.domains.EraseTeam, hooks.EraseTeam, n.emails.EraseTeam,
		n.broadcasts.EraseTeam, n.automations.EraseTeam,
		n.templates.EraseTeam, n.contents.EraseTeam, n.receiving.EraseTeam, suppressed.EraseTeam, n.live.EraseTeam,
		counters.EraseTeam, n.volume.EraseTeam, n.imports.EraseTeam, n.contacts.EraseTeam, n.events.EraseTeam, n.privacy.EraseTeam,
		n.logs.EraseTeam, n.approvals.EraseTeam, n.grants.EraseTeam, n.members.EraseTeam, n.audit.EraseTeam}
	if n.has("delivery") {
		n.runner.Handle(n.delivery.Kind())
	}
	if n.has("jobs") {
		for _, k := range n.emails.Kinds() {
			n.runner.Handle(k)
		}
		n.runner.Handle(n.domains.Kind())
		n.runner.Handle(notify.Kind())
		n.runner.Handle(n.imports.JobKind())
		n.runner.Handle(n.privacy.Kind())
		for _, k := range slices.Concat(n.broadcasts.Kinds(), n.automations.Kinds(), hooks.Kinds()) {
			n.runner.Handle(k)
		}
		n.runner.Handle(n.teams.EraseJobs(n.queue, n.erasers...))
		n.runner.Cron(jobs.Cron{Name: "webhooks", Every: time.Hour, Run: hooks.Sweep})
		n.runner.Cron(jobs.Cron{Name: "idempotency", Every: time.Hour, Run: n.emails.Sweep})
		n.runner.Cron(jobs.Cron{Name: "metrics", Every: time.Minute, Run: counters.RollUp})
		n.runner.Cron(jobs.Cron{Name: "live", Every: 5 * time.Minute, Run: n.live.Sweep})
		n.runner.Cron(jobs.Cron{Name: "requestlog", Every: time.Hour, Run: n.logs.Sweep})
		n.runner.Cron(jobs.Cron{Name: "audit", Every: time.Hour, Run: n.audit.Sweep})
		n.runner.Cron(jobs.Cron{Name: "approvals", Every: time.Minute, Run: n.approvals.Sweep})
		n.runner.Cron(jobs.Cron{Name: "oauth", Every: time.Hour, Run: n.grants.Sweep})
		n.runner.Cron(jobs.Cron{Name: "users", Every: time.Hour, Run: n.users.Sweep})
		n.runner.Cron(jobs.Cron{Name: "invitations", Every: 24 * time.Hour, Run: n.members.Sweep})
		n.runner.Cron(jobs.Cron{Name: "attachments", Every: 6 * time.Hour, Run: n.emails.SweepFiles})
		n.runner.Cron(jobs.Cron{Name: "templates", Every: time.Hour, Run: n.templates.Sweep})
		n.runner.Cron(jobs.Cron{Name: "contents", Every: time.Hour, Run: n.emails.SweepContents})
		n.runner.Cron(jobs.Cron{Name: "contacts", Every: time.Hour, Run: n.contacts.Sweep})
		n.runner.Cron(jobs.Cron{Name: "automations", Every: time.Hour, Run: n.automations.Sweep})
		n.runner.Cron(jobs.Cron{Name: "imports", Every: time.Hour, Run: n.imports.Sweep})
		n.runner.Cron(jobs.Cron{Name: "erasures", Every: 24 * time.Hour, Run: n.privacy.Sweep})
		n.runner.Cron(jobs.Cron{Name: "received", Every: 6 * time.Hour, Run: n.receiving.Sweep})
		n.runner.Cron(jobs.Cron{Name: "retention", Every: 15 * time.Minute, Run: n.retention(n.db.Now).Run})
		n.runner.Cron(jobs.Cron{Name: "domains", Every: 10 * time.Minute, Run: n.domains.Recheck})
	}
	return nil
}

// newUsers builds what keeps people: users and members, which know each other.
func (n *node) newUsers(keys *keyring.Keyring) {
	c := n.c
	n.users = users.New(users.Config{PublicURL: c.PublicURL, OIDC: users.OIDCConfig{Issuer: c.OIDCIssuer,
		ClientID: c.OIDCClientID, ClientSecret: string(c.OIDCClientSecret), Name: c.OIDCName, Domains: c.OIDCDomains}},
		n.db, keys, n.log)
	n.members = newMembers(c, n.db, n.users, n.audit)
	n.users.Audit, n.users.TeamsOf, n.users.Leaving = n.audit, n.members.TeamsOf, n.members.Leaving
}

// newMembers returns the service of members, whose invitations lead to a page of this node.
func newMembers(c config.Config, d *db.DB, u *users.Service, a *audit.Log) *members.Service {
	m := members.New(d, u, a)
	m.Link = func(token string) string { return strings.TrimSuffix(c.PublicURL, "/") + "/invitations/" + token }
	return m
}

// trial returns the quota of new teams.
func trial(c config.Config) teams.Quota {
	return teams.Quota{Daily: int64(c.TrialDaily), Monthly: int64(c.TrialMonthly)}
}

// newVolume returns the service of quotas, to which what metrics have counted is known.
func newVolume(d *db.DB) *quotas.Service {
	counters, v := metrics.New(d), quotas.New(d)
	v.Before = func(ctx context.Context, teamID string, from, to time.Time) (int64, error) {
		u, err := counters.Usage(ctx, teamID, from, to)
		return int64(u.Sent + u.Received), err
	}
	return v
}

// keeps returns for how long the installation keeps the data of teams.
func keeps(c config.Config) teams.Retention {
	return teams.Retention{Emails: c.EmailRetention, Bodies: c.BodyRetention, Received: c.ReceivedRetention,
		Events: c.EventRetention}
}

// retention returns the service that deletes expired data, by the given clock.
func (n *node) retention(now func() time.Time) *retention.Service {
	bodies := func(r teams.Retention) time.Duration { return r.Bodies }
	emails := func(r teams.Retention) time.Duration { return r.Emails }
	received := func(r teams.Retention) time.Duration { return r.Received }
	events := func(r teams.Retention) time.Duration { return r.Events }
	return retention.New(keeps(n.c), n.teams, now,
		retention.Rule{Name: "emails", Kept: emails, Step: n.emails.RemoveBefore},
		retention.Rule{Name: "bodies", Kept: bodies, Step: n.emails.RemoveBodies},
		retention.Rule{Name: "bodies", Kept: bodies, Step: n.emails.RemoveSkippedBodies},
		retention.Rule{Name: "received emails", Kept: received, Step: n.receiving.RemoveBefore},
		retention.Rule{Name: "recipients of broadcasts", Kept: events, Step: n.broadcasts.RemoveRecipients},
		retention.Rule{Name: "runs of automations", Kept: events, Step: n.automations.RemoveRuns},
		retention.Rule{Name: "timelines", Kept: events, Step: n.emails.RemoveTimelines})
}

// observe adds an API request to the request log.
func (n *node) observe(ctx context.Context, r api.RequestRecord) {
	if r.Logged() {
		n.logs.Add(ctx, requestlog.Request{TeamID: r.TeamID, Actor: r.Actor.Ref(), RequestID: r.ID, Method: r.Method,
			Path:      r.Path,
			UserAgent: r.UserAgent, Status: r.Status, Duration: r.Duration, Body: r.Body, Answer: r.Answer,
			LongAnswer: r.Long})
	}
}

func (n *node) has(role string) bool { return slices.Contains(n.c.Roles, role) }

// ready reports whether this node can serve: its database answers and accepts writes.
func (n *node) ready(ctx context.Context) error {
	if err := n.db.Ready(ctx); err != nil {
		return errors.New("the database does not answer, or takes no writes")
	}
	return nil
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

// ownAddresses returns this node's HTTP listener, which no address given by a user may reach.
func ownAddresses(c config.Config) []netip.AddrPort {
	addr, err := net.ResolveTCPAddr("tcp", c.HTTPListen)
	if err != nil || c.AllowLoopback {
		return nil
	}
	return []netip.AddrPort{addr.AddrPort()}
}

// trackingHosts returns the hosts of this installation for which a reverse proxy may get certificates, besides those of
// domains.
func trackingHosts(c config.Config) (all []string) {
	for _, text := range []string{c.PublicURL, c.TrackingURL} {
		if u, err := url.Parse(text); err == nil && u.Hostname() != "" {
			all = append(all, strings.ToLower(u.Hostname()))
		}
	}
	return all
}

// run runs every part until ctx ends, and then stops them: first the listeners, of which there are none without the
// role api, then the parts that claim work, then the rest.
func (n *node) run(ctx context.Context, listeners ...net.Listener) error {
	if err := errors.Join(n.listenInbound(), n.listenSubmission()); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	n.serveSMTP(ctx, g)
	server := &http.Server{Handler: n.handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 5 * time.Minute,
		WriteTimeout: 5 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug)}
	server.RegisterOnShutdown(n.live.Close)
	server.RegisterOnShutdown(n.imports.Close)
	served, shut := context.WithCancel(context.WithoutCancel(ctx)) // ends after the last request
	defer shut()
	g.Go(func() error { return n.logs.Run(served) })
	g.Go(func() error { return n.tracking.Run(served) })
	g.Go(func() error { return n.users.Run(served) })
	for _, l := range listeners {
		g.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve HTTP: %w", err)
			}
			return nil
		})
	}
	if len(listeners) == 0 {
		context.AfterFunc(ctx, shut)
	} else {
		g.Go(func() error {
			defer shut()
			<-ctx.Done()
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.c.ShutdownGrace)
			defer cancel()
			err := server.Shutdown(stop)
			if errors.Is(err, context.DeadlineExceeded) {
				n.log.Warn("requests that did not come to an end were cut off", "grace", n.c.ShutdownGrace)
				err = server.Close()
			}
			return err
		})
	}
	g.Go(func() error { return n.db.Run(ctx) })
	g.Go(func() error { return n.shares.Run(ctx) })
	g.Go(func() error { return n.live.Run(ctx) })
	g.Go(func() error { return n.teams.Run(ctx) })
	g.Go(func() error { return n.domains.Run(ctx) })
	g.Go(func() error { return n.contacts.Run(ctx) })
	g.Go(func() error {
		err := n.runner.Run(ctx)
		n.delivery.Run(ctx) // ctx has ended: all idle connections are closed
		return err
	})
	if n.has("delivery") {
		g.Go(func() error { return n.delivery.Run(ctx) })
	}
	err := g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (n *node) close() {
	n.closePorts()
	if n.db != nil {
		n.db.Close()
	}
	if n.blobs != nil {
		n.blobs.Close()
	}
	if n.lock != nil {
		n.lock.Close()
	}
}
