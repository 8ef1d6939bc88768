// Package resources builds the services that own database tables, from users and teams up to approvals, and connects
// them. Package node builds workers and protocols on top of these services, and package testnode builds the services
// for tests.
//
// # Invariants
//
// Each service is built once and is given every function that it calls in another service. New fails if a function is
// missing, so that forgetting one cannot disable a limit. If two services call each other, each gets functions that
// look up the other service in [Resources] at the time of the call.
//
// # Out of scope
//
// Package resources does not open the database or the blob store, start goroutines, or use the network.
package resources

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/savedfilters"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/authority"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/outbound/exportruns"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/approvals"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/dnsadvice"
	"github.com/postrider/postrider/internal/sending/domainconnect"
	"github.com/postrider/postrider/internal/sending/domainreports"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/explain"
	"github.com/postrider/postrider/internal/sending/metrics"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
	"github.com/postrider/postrider/internal/sending/suppressions"
	"github.com/postrider/postrider/internal/sending/templates"
)

// Base holds the database, the blob store and the other dependencies of the services.
type Base struct {
	DB    *db.DB
	Blobs *blob.Store
	Keys  *keyring.Keyring
	Guard *netguard.Guard
	DNS   resolve.Resolver // without a cache
	Log   *slog.Logger

	AuthorityPort uint16 // port of authoritative name servers; 0 means 53
}

// NameServer is a name server of this installation.
type NameServer struct {
	Name  string
	Addrs []netip.Addr
}

// Config contains the settings for the services.
type Config struct {
	PublicURL      string
	TrackingURL    string
	NameServers    []NameServer  // name servers of this installation; none without a zone
	FeedbackSender string        // see emails.Config
	MaxSize        int64         // maximum size of an encoded message, in bytes
	AuditRetention time.Duration // 0 keeps audit entries forever
	Trial          teams.Quota
	Users          users.Config
	PolicyHost     string // see servedpolicies.Config.PublicHost
	Domains        domains.Config
	DNSProviders   []dnsadvice.Provider // that advice about domains recognizes
	DomainConnect  domainconnect.Config
	MarkRoots      *x509.CertPool // roots of BIMI mark certificates; nil if chains are not checked
	GrantResources []string       // URLs that OAuth grants may be issued for; the API comes first
	Aliases        []string       // other base URLs of this installation, such as http://127.0.0.1:3000
	DomainReports  DomainReports
}

// DomainReports are the settings for reports about teams' domains.
type DomainReports struct {
	Host      string        // host of the addresses for reports; "" means the inbound host of the domain's region
	OwnHosts  []string      // hosts from whose addresses this installation sends
	Retention time.Duration // of the counts
}

// Hooks holds functions that the services use to call services in higher layers.
type Hooks struct {
	// Notify enqueues an email to the owner of a team in the transaction tx.
	Notify func(ctx context.Context, tx *db.Tx, teamID, subject, text string) error
	// Mail enqueues an email to one address in the transaction tx. Mail is nil if the installation has no sender
	// address for notices.
	Mail func(ctx context.Context, tx *db.Tx, to, subject, text string) error
	// BeforeEvent is called before the transaction that accepts a custom event of an existing contact.
	BeforeEvent func(ctx context.Context, teamID, event, contactID string) error
	// OnSenderStop pauses the broadcasts of an actor, or of the whole team if by is the zero value. OnSenderStop is
	// called in the transaction that takes the right to send away.
	OnSenderStop func(ctx context.Context, tx *db.Tx, teamID string, by teams.ActorRef) error
	// OnGrantStop stops the automations of a connected app, in the transaction that revokes or limits the app.
	OnGrantStop func(ctx context.Context, tx *db.Tx, teamID, grantID string) error
	// OnDomainLost pauses the broadcasts whose sender is at a domain, in the transaction after which the team may no
	// longer send from the domain.
	OnDomainLost func(ctx context.Context, tx *db.Tx, teamID, name string) error
	// OnDomainBack continues the broadcasts that OnDomainLost paused, in the transaction after which the team may send
	// from the domain again.
	OnDomainBack func(ctx context.Context, tx *db.Tx, teamID, name string) error
	// OnEvent is called in the transaction that accepts a custom event.
	OnEvent func(ctx context.Context, tx *db.Tx, o customevents.Occurrence) error
	// OnAccept is called after emails were accepted; it may be nil. See emails.Deps.
	OnAccept func(source string, ids []string)
	// Decision returns the decision about the emails of a broadcast that have the given content.
	Decision func(ctx context.Context, teamID, broadcastID, contentID string) (emails.Decision, error)
	// FetchPolicy fetches the MTA-STS policy of a domain as a sender does.
	FetchPolicy func(ctx context.Context, domain string) (p mtasts.Policy, r mtasts.Result, reason string)
	// MailCertificate returns the certificate that SMTP clients get for a host of the installation. The error says why
	// clients that verify certificates refuse it.
	MailCertificate func(ctx context.Context, host string) (*x509.Certificate, error)
	// Held returns why mail to a domain waits, if the operator has paused it, and since when it is known to be paused;
	// nil means that it is never paused.
	Held func(domain string) (reason string, since time.Time, held bool)
}

// Resources holds the services that own database tables.
type Resources struct {
	Base
	Queue        *jobs.Queue
	Recorder     *events.Recorder
	Audit        *audit.Log
	Teams        *teams.Service
	Users        *users.Service
	Members      *members.Service
	SavedFilters *savedfilters.Service
	ExportRuns   *exportruns.Service
	Grants       *grants.Service
	Quotas       *quotas.Service
	Contacts     *contacts.Service
	Domains      *domains.Service
	Advice       *dnsadvice.Service
	Connect      *domainconnect.Service
	// ServedPolicies publishes the MTA-STS policies of receiving domains.
	ServedPolicies *servedpolicies.Service
	Suppressions   *suppressions.Service
	Metrics        *metrics.Service
	Contents       *content.Service
	Templates      *templates.Service
	Emails         *emails.Service
	Explanations   *explain.Service
	Approvals      *approvals.Service
	CustomEvents   *customevents.Service
	Reports        *domainreports.Service
}

// New builds the services. Services that listen to events are registered with the recorder.
func New(b Base, c Config, h Hooks) (*Resources, error) {
	r := &Resources{Base: b, Queue: jobs.NewQueue(b.DB), Recorder: &events.Recorder{},
		Audit: audit.New(b.DB, c.AuditRetention), Metrics: metrics.New(b.DB), Contents: content.New(b.DB)}
	r.Suppressions = suppressions.New(b.DB, r.Recorder)
	r.Templates = templates.New(b.DB, r.Contents, c.MaxSize)
	for _, build := range []func(Config, Hooks) error{r.newDomains, r.newReports, r.newTeams, r.newServedPolicies,
		r.newUsers, r.newMembers, r.newGrants,
		r.newQuotas, r.newContacts, r.newEmails, r.newApprovals, r.newCustomEvents} {
		if err := build(c, h); err != nil {
			return nil, fmt.Errorf("build the services of resources: %w", err)
		}
	}
	r.Recorder.Listen(r.Emails)
	r.Recorder.Listen(r.Suppressions)
	r.Recorder.Listen(r.Contacts)
	r.Recorder.Listen(r.Reports)
	return r, nil
}

func (r *Resources) newDomains(c Config, h Hooks) (err error) {
	c.Domains.TrackingURL = c.TrackingURL
	var authoritative func(ctx context.Context, name string) ([]domains.ServerAnswer, error)
	if _, ok := r.DNS.(resolve.NameServers); ok && !c.Domains.TrustDomains {
		authoritative = authoritativeTXT(r.authority())
	}
	var askOwn func(ctx context.Context, domain string) []domains.NameServerAnswer
	if len(c.NameServers) > 0 && !c.Domains.TrustDomains {
		askOwn = askServers(r.authority(), c.NameServers)
	}
	if err := r.newAdvice(c); err != nil {
		return err
	}
	r.Domains, err = domains.New(c.Domains, domains.Deps{DB: r.DB, Queue: r.Queue, Recorder: r.Recorder, Keys: r.Keys,
		DNS: r.DNS, Log: r.Log, Notify: h.Notify, SentSince: r.sentSince, OnSendingLost: h.OnDomainLost,
		Advised: []domains.AdvisedSource{r.policyRecords,
			func(ctx context.Context, all []*domains.Domain) (map[string][]domains.AdvisedRecord, error) {
				return r.Reports.AdvisedOfAll(ctx, all)
			}},
		OnVerify: func(ctx context.Context, tx *db.Tx, teamID, domainID string) error {
			return r.ServedPolicies.CheckSoon(ctx, tx, teamID, domainID)
		},
		Withdrawn:     func(ctx context.Context) ([]domains.WithdrawnRecords, error) { return r.ServedPolicies.Withdrawn(ctx) },
		LookUpAdvised: func(ctx context.Context, d *domains.Domain, ours bool) error { return r.Reports.LookUp(ctx, d, ours) },
		Delegation:    r.authority().Delegation, Authoritative: authoritative, AskServers: askOwn,
		Advice: r.Advice.Advice,
		OnSendingBack: func(ctx context.Context, tx *db.Tx, teamID, name string) error {
			if err := r.Emails.OnDomainBack(ctx, tx, teamID, name); err != nil {
				return err
			}
			return h.OnDomainBack(ctx, tx, teamID, name)
		},
		HasScheduled: func(ctx context.Context, teamID, domainID string) (bool, error) {
			return r.Emails.HasScheduledFrom(ctx, teamID, domainID)
		}})
	return err
}

// authority returns a client for authoritative name servers. It connects to private networks only if the operator
// allows them, as webhooks do.
func (r *Resources) authority() *authority.Client {
	return &authority.Client{DNS: r.DNS, Port: r.AuthorityPort, Allow: r.Guard.Allowed}
}

func (r *Resources) newServedPolicies(c Config, h Hooks) (err error) {
	r.ServedPolicies, err = servedpolicies.New(servedpolicies.Config{PublicHost: c.PolicyHost,
		TrustRecords: c.Domains.TrustDomains}, servedpolicies.Deps{DB: r.DB, Recorder: r.Recorder, Domains: r.Domains,
		DNS: r.DNS, Notify: h.Notify, Fetch: h.FetchPolicy, Certificate: h.MailCertificate, Reports: r.Reports.Sessions,
		Suspended: func(ctx context.Context, teamID string) (bool, error) {
			team, err := r.Teams.Get(ctx, teamID)
			if fault.KindOf(err) == fault.NotFound {
				return true, nil
			}
			return team.Suspended, err
		}})
	return err
}

// policyRecords returns the DNS records of the MTA-STS policies of domains as advised records.
func (r *Resources) policyRecords(ctx context.Context,
	of []*domains.Domain) (map[string][]domains.AdvisedRecord, error) {
	records, err := r.ServedPolicies.Records(ctx, of)
	all := make(map[string][]domains.AdvisedRecord, len(records))
	for _, d := range of {
		for _, x := range records[d.ID] {
			why := "Senders fetch the MTA-STS policy of the domain from this host."
			if x.Type == "TXT" {
				why = "Senders fetch the MTA-STS policy again if the id changes."
				if !d.Served() {
					why += " Publish the new id after each change."
				}
			}
			all[d.ID] = append(all[d.ID], domains.AdvisedRecord{Purpose: domains.PurposeMTASTS, Name: x.Name, Type: x.Type,
				Value: x.Value, Why: why})
		}
	}
	return all, err
}

func (r *Resources) newReports(c Config, h Hooks) (err error) {
	region := func(label string) domains.Region { return c.Domains.Regions[label] }
	spf := []string{c.Domains.Default.SPFInclude}
	for label := range c.Domains.Regions {
		spf = append(spf, region(label).SPFInclude)
	}
	slices.Sort(spf)
	spf = slices.DeleteFunc(slices.Compact(spf), func(name string) bool { return name == "" })
	r.Reports, err = domainreports.New(domainreports.Config{
		HostOf: func(label string) string {
			return cmp.Or(c.DomainReports.Host, region(label).InboundHost, c.Domains.Default.InboundHost)
		},
		SPFHosts: spf, OwnHosts: c.DomainReports.OwnHosts, Retention: c.DomainReports.Retention,
		TrustRecords: c.Domains.TrustDomains,
	}, domainreports.Deps{DB: r.DB, Blobs: r.Blobs, DNS: r.DNS, Domains: r.Domains, Log: r.Log, Notify: h.Notify})
	return err
}

// sentSince reports whether a team has sent any emails from a domain since the given time.
func (r *Resources) sentSince(ctx context.Context, teamID, domainID string, since time.Time) (bool, error) {
	all, err := r.Metrics.Count(ctx, teamID, metrics.Query{From: since, To: r.DB.Now(), DomainIDs: []string{domainID}})
	sent := func(c metrics.Count) bool { return c.Type == "sent" && c.Events > 0 }
	return slices.ContainsFunc(all, sent), err
}

func (r *Resources) newTeams(c Config, h Hooks) (err error) {
	r.Teams, err = teams.New(teams.Config{Trial: c.Trial}, teams.Deps{DB: r.DB, Log: r.Log,
		DomainExists: func(ctx context.Context, teamID, domainID string) (bool, error) {
			return r.Domains.Exists(ctx, teamID, domainID)
		},
		AuthenticateToken: func(ctx context.Context, token string) (teams.Actor, time.Time, error) {
			return r.Grants.Authenticate(ctx, token)
		},
		GrantActive: func(ctx context.Context, reader db.Reader, teamID, grantID string) (bool, error) {
			return r.Grants.Active(ctx, reader, teamID, grantID)
		},
		GrantMaySend: func(ctx context.Context, reader db.Reader, teamID, grantID string, due teams.DueSend) (bool, error) {
			return r.Grants.MaySend(ctx, reader, teamID, grantID, due)
		},
		OnKeyDelete: func(ctx context.Context, tx *db.Tx, teamID, keyID string) error {
			return r.Grants.RevokeKey(ctx, tx, teamID, keyID)
		},
		OnSenderStop: h.OnSenderStop})
	return err
}

func (r *Resources) newUsers(c Config, h Hooks) (err error) {
	r.Users, err = users.New(c.Users, users.Deps{DB: r.DB, Keys: r.Keys, Log: r.Log, Audit: r.Audit, Mail: h.Mail,
		TeamsOf: func(ctx context.Context, reader db.Reader, userID string) ([]string, error) {
			return r.Members.TeamsOf(ctx, reader, userID)
		},
		OnUserDelete: func(ctx context.Context, tx *db.Tx, userID string) error {
			return r.Members.OnUserDelete(ctx, tx, userID)
		},
		OnUserDisable: func(ctx context.Context, tx *db.Tx, userID string) error {
			return r.Grants.RevokeDisabled(ctx, tx, userID)
		}})
	return err
}

func (r *Resources) newMembers(c Config, h Hooks) (err error) {
	r.Members, err = members.New(members.Deps{DB: r.DB, Users: r.Users, Audit: r.Audit, Mail: h.Mail,
		Link: func(token string) string { return strings.TrimSuffix(c.PublicURL, "/") + "/invitations/" + token },
		OnMemberRemoved: func(ctx context.Context, tx *db.Tx, teamID, userID string) error {
			if err := r.SavedFilters.OnMemberRemoved(ctx, tx, teamID, userID); err != nil {
				return err
			}
			if err := r.ExportRuns.OnMemberRemoved(ctx, tx, teamID, userID); err != nil {
				return err
			}
			return r.Grants.RevokeUser(ctx, tx, teamID, userID)
		},
		ScopesOf: func(ctx context.Context, reader db.Reader, teamID string, by teams.ActorRef) (teams.Scopes, error) {
			return r.Grants.ScopesOf(ctx, reader, teamID, by)
		}})
	if err != nil {
		return err
	}
	r.ExportRuns = exportruns.New(r.DB)
	r.SavedFilters, err = savedfilters.New(savedfilters.Deps{DB: r.DB, ScopesIn: r.Members.ScopesIn})
	return err
}

func (r *Resources) newGrants(c Config, h Hooks) (err error) {
	r.Grants, err = grants.New(grants.Config{Issuer: c.PublicURL, Resources: c.GrantResources, Aliases: c.Aliases},
		grants.Deps{DB: r.DB, Keys: r.Keys, Teams: r.Teams, Members: r.Members, Audit: r.Audit, Log: r.Log,
			OnStop: h.OnGrantStop})
	return err
}

func (r *Resources) newQuotas(_ Config, h Hooks) (err error) {
	r.Quotas, err = quotas.New(quotas.Deps{DB: r.DB, Notify: h.Notify,
		CountedBetween: func(ctx context.Context, teamID string, from, to time.Time) (int64, error) {
			u, err := r.Metrics.Usage(ctx, teamID, from, to)
			return int64(u.Sent + u.Received), err
		}})
	return err
}

func (r *Resources) newContacts(Config, Hooks) (err error) {
	r.Contacts, err = contacts.New(contacts.Deps{DB: r.DB, Recorder: r.Recorder, Keys: r.Keys, Log: r.Log,
		OnUnsubscribe: func(ctx context.Context, tx *db.Tx, l contacts.Link) error {
			return r.Emails.RecordUnsubscribed(ctx, tx, l.TeamID, l.EmailID, l.Address)
		}})
	return err
}

func (r *Resources) newEmails(c Config, h Hooks) (err error) {
	r.Emails, err = emails.New(emails.Config{MaxSize: c.MaxSize, PublicURL: c.PublicURL, TrackingURL: c.TrackingURL,
		FeedbackSender: c.FeedbackSender},
		emails.Deps{DB: r.DB, Queue: r.Queue, Recorder: r.Recorder, Blobs: r.Blobs, Keys: r.Keys, Guard: r.Guard,
			Domains: r.Domains, Suppressions: r.Suppressions, Teams: r.Teams, Contents: r.Contents, Contacts: r.Contacts,
			Templates: r.Templates, Quotas: r.Quotas, Log: r.Log,
			OnAccept: h.OnAccept, ConsumeLimit: func(ctx context.Context, tx *db.Tx, by teams.Actor, recipients []int) error {
				return r.Grants.ConsumeLimits(ctx, tx, by, recipients)
			},
			ConsumeDueLimit: func(ctx context.Context, tx *db.Tx, teamID, grantID string, n int, accepted time.Time) error {
				return r.Grants.ConsumeDue(ctx, tx, teamID, grantID, n, accepted)
			},
			IsApproved: func(ctx context.Context, teamID, emailID string) (bool, error) {
				return r.Approvals.IsApproved(ctx, teamID, emailID)
			},
			CheckLimit: func(ctx context.Context, by teams.Actor, recipients []int) ([]error, error) {
				return r.Grants.CheckEach(ctx, by, recipients)
			}})
	if err != nil {
		return err
	}
	r.Explanations, err = explain.New(explain.Deps{Emails: r.Emails, Decision: h.Decision, Held: h.Held})
	return err
}

func (r *Resources) newApprovals(c Config, h Hooks) (err error) {
	r.Approvals, err = approvals.New(c.PublicURL, approvals.Deps{DB: r.DB, Recorder: r.Recorder, Emails: r.Emails,
		Grants: r.Grants, Members: r.Members, Teams: r.Teams, Audit: r.Audit, Mail: h.Mail})
	return err
}

func (r *Resources) newCustomEvents(_ Config, h Hooks) (err error) {
	r.CustomEvents, err = customevents.New(customevents.Deps{DB: r.DB, Contacts: r.Contacts,
		BeforeEvent: h.BeforeEvent, OnEvent: h.OnEvent})
	return err
}
