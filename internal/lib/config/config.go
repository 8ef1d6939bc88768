// Package config reads the settings of a node into one typed Config: from built-in defaults, then postrider.toml,
// then POSTRIDER_* variables, then flags. Each source overrides those before it.
//
// # Invariants
//
// A setting is declared once, as a field of Config with tags, from which its key in the file, its variable, its flag,
// its default and its line in docs/configuration.md are derived. A Config that Load returned without an error is
// valid and complete, including what is derived from other settings or from the machine.
//
// # When it fails
//
// Load returns all problems at once, each with the setting, where its value came from, and what to do. Only an error
// in the form of the flags, such as an unknown one, is returned alone. An unknown key of the file is a problem; an
// unknown POSTRIDER_* variable is not noticed.
//
// # What it does not do
//
// It has nothing that changes while the program runs (domains, keys, limits of a team): those are data in the
// database. Only cli imports this package, and passes each part the few values that it needs.
package config

import (
	"encoding"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Config is the settings of a node. The tags are the key, the default as text, and the description for the manual.
type Config struct {
	DataDir     string `toml:"data_dir" default:"data" doc:"Folder of the database, the blobs and the secret key, where those have no setting of their own."`
	DatabaseURL Secret `toml:"database_url" doc:"PostgreSQL as postgres://user:password@host/name. Empty: SQLite in data_dir/postrider.db, for a single node."`
	BlobURL     string `toml:"blob_url" doc:"Where raw messages and attachments are kept: a folder, file:///folder, s3://BUCKET?region=... (its parameters are in operating.md), or mem:// (lost at exit). Empty: data_dir/blobs."`
	SecretKey   Secret `toml:"secret_key" doc:"Master key of sealed secrets and signed links, 64 hexadecimal digits, the same on all nodes. Empty: read from data_dir/secret.key, which is made at the first start. Keep a copy."`

	HTTPListen       string         `toml:"http_listen" default:":8080" doc:"Address and port of the API."`
	PublicURL        string         `toml:"public_url" doc:"URL under which others reach this node, for links in emails and answers. Empty: http://localhost and the port of http_listen, or the address that it names."`
	HTTPProxyFrom    []netip.Prefix `toml:"http_proxy_from" doc:"Proxies before http_listen, as prefixes such as 10.0.0.0/8: of requests from there, the client is the last address in X-Forwarded-For that is no proxy's. Opens, clicks and limits by address need it behind a proxy."`
	Hostname         string         `toml:"hostname" doc:"Name of this node in EHLO and Message-IDs. Its address record must lead here, and the address's PTR record back. Empty: the name of the machine."`
	RateLimit        int            `toml:"rate_limit" default:"10" doc:"Requests per second that a team may make, to all nodes of a database together. 0: no limit."`
	RequireUserAgent bool           `toml:"require_user_agent" default:"false" doc:"Refuse API requests without a User-Agent header."`
	TrialDaily       int            `toml:"trial_daily" default:"0" doc:"Emails a day, sent and received, that a team may have that is made from now on; the first team has no quota. postrider teams limit changes it. 0: no quota."`
	TrialMonthly     int            `toml:"trial_monthly" default:"0" doc:"The same for a month."`
	LegacyAliases    bool           `toml:"legacy_aliases" default:"true" doc:"Serve operations under the other names that older and official clients use for them too: /email, /emails/sending, /email/sending, /domains/claims; and take the older prefix of the value that proves a claim, resend-domain-verification=."`
	AttachmentMax    Size           `toml:"attachment_max" default:"40MB" doc:"Greatest size of a message with its attachments, encoded."`
	ImportMaxSize    Size           `toml:"import_max_size" default:"50MB" doc:"Greatest size of a file of contacts that is imported."`

	Transport       string          `toml:"transport" default:"direct" doc:"How mail leaves: direct (to the recipient's hosts), relay (through relay_addr), or capture (kept in the blobs, never sent; the command dev shows it)."`
	RelayAddr       string          `toml:"relay_addr" doc:"host:port of the relay."`
	RelayUsername   string          `toml:"relay_username" doc:"User name at the relay. Empty: no authentication."`
	RelayPassword   Secret          `toml:"relay_password" doc:"Password at the relay."`
	RelayTLS        string          `toml:"relay_tls" default:"opportunistic" doc:"TLS towards the relay: opportunistic (STARTTLS when offered; with relay_username as required, unless the relay is on this machine), required (STARTTLS with a valid certificate), implicit (TLS from the first byte), or none. Mail of a domain with TLS enforced needs a valid certificate for the host of relay_addr under opportunistic and none, too, but for a relay on this machine under none."`
	SMTPPort        int             `toml:"smtp_port" default:"25" doc:"Port that direct transport dials. Anything but 25 is for tests."`
	DNSServers      []string        `toml:"dns_servers" doc:"Resolvers to ask, as address or address:port. Empty: those of the system."`
	DeliveryWorkers int             `toml:"delivery_workers" default:"0" doc:"Deliveries at the same time. 0: four per CPU, at least 16."`
	Signers         int             `toml:"signers" default:"0" doc:"DKIM signatures at the same time. 0: one per CPU."`
	RetrySchedule   []time.Duration `toml:"retry_schedule" default:"1m,5m,15m,30m,1h,2h,4h,8h,8h,8h,8h,8h" doc:"Waits between attempts to deliver, each varied a little. After the last one the email bounces."`
	LaneConcurrency int             `toml:"lane_concurrency" default:"20" doc:"Connections to one destination, and to one address however many destinations lead to it, at the same time, of all nodes of a database together. There is one at first; prompt answers add others."`
	LaneRate        float64         `toml:"lane_rate" default:"0" doc:"Messages per second to one destination, from all nodes of a database together. 0: no limit."`
	ConnectionsMax  int             `toml:"connections_max" default:"500" doc:"Connections of this node to all destinations at the same time."`

	WebhookSchedule     []time.Duration `toml:"webhook_schedule" default:"5s,5m,30m,2h,5h,10h,10h" doc:"Waits between attempts to deliver a webhook, each varied a little. After the last one it has failed, and can be replayed."`
	WebhookDisableAfter time.Duration   `toml:"webhook_disable_after" default:"120h" doc:"Time of nothing but failures after which a webhook endpoint is disabled."`
	WebhookRetention    time.Duration   `toml:"webhook_retention" default:"720h" doc:"How long webhook events and their attempts are kept."`

	BroadcastBounceLimit    float64 `toml:"broadcast_bounce_limit" default:"5" doc:"Percent of a broadcast's emails handed over, once they are 200, whose permanent bounces pause it. 100: never."`
	BroadcastComplaintLimit float64 `toml:"broadcast_complaint_limit" default:"0.3" doc:"Percent of a broadcast's emails handed over, once they are 1,000, whose complaints pause it: from that rate on the large mailbox providers refuse a sender's mail. 100: never."`

	BounceHost            string `toml:"bounce_host" doc:"Host that takes bounces, the MX of customers' return paths. Empty: hostname."`
	InboundHost           string `toml:"inbound_host" doc:"Host that takes mail for customers' domains, their MX. Empty: hostname."`
	SPFInclude            string `toml:"spf_include" doc:"Name whose SPF record lists the sending addresses; customers include it. Empty: hostname."`
	TrackingHost          string `toml:"tracking_host" doc:"Host that customers' tracking domains are a CNAME of. Empty: the host of public_url."`
	TrackingURL           string `toml:"tracking_url" doc:"URL that tracked links and pixels begin with, for all domains. Empty: https:// and the tracking domain, for which something before http_listen must have a certificate."`
	DKIMSelector          string `toml:"dkim_selector" default:"postrider" doc:"Selector of the RSA key of customers' domains."`
	DKIMSelectorEd25519   string `toml:"dkim_selector_ed25519" default:"postrider-ed" doc:"Selector of their Ed25519 key."`
	CAAIssuer             string `toml:"caa_issuer" default:"letsencrypt.org" doc:"Certificate authority that a CAA record of a tracking domain must allow."`
	SMTPSubmitListen      string `toml:"smtp_submit_listen" default:":587" doc:"Address and port of SMTP submission with STARTTLS, with the role submission. Empty: none."`
	SMTPSubmitsListen     string `toml:"smtp_submits_listen" default:":465" doc:"Address and port of SMTP submission with TLS from the first octet, with the role submission. Empty: none."`
	SMTPSubmitConnections int    `toml:"smtp_submit_connections" default:"500" doc:"Connections to each of these at the same time."`
	SMTPSubmitPerAddress  int    `toml:"smtp_submit_per_address" default:"50" doc:"Of these, connections from one IPv4 address or one IPv6 network of 64 bits. 0: no limit."`
	SMTPSubmitClear       bool   `toml:"smtp_submit_clear" default:"false" doc:"Development: take passwords without TLS where smtp_submit_listen is a loopback address."`
	TLSCertFile           string `toml:"tls_cert_file" doc:"Certificate of SMTP listeners with its chain, in PEM. It is read anew when it changes. Empty: one that nobody signed is made."`
	TLSKeyFile            string `toml:"tls_key_file" doc:"Key of that certificate, in PEM."`

	SMTPInListen        string         `toml:"smtp_in_listen" default:":25" doc:"Address and port at which mail comes in, with the role receiving."`
	SMTPInMaxSize       Size           `toml:"smtp_in_max_size" default:"40MB" doc:"Greatest size of a message that comes in."`
	SMTPInConnections   int            `toml:"smtp_in_connections" default:"1000" doc:"Connections of mail that comes in at the same time."`
	SMTPInPerAddress    int            `toml:"smtp_in_per_address" default:"50" doc:"Of these, connections from one IPv4 address or one IPv6 network of 64 bits. 0: no limit."`
	SMTPProxyFrom       []netip.Prefix `toml:"smtp_proxy_from" doc:"Proxies before the SMTP ports, as prefixes such as 10.0.0.0/8: connections from there begin with a PROXY header (version 1 or 2) that names the client."`
	Milter              string         `toml:"milter" doc:"Content filter that is asked about mail that comes in: unix:/path or inet:host:port. Empty: none."`
	MilterRequired      bool           `toml:"milter_required" default:"false" doc:"Answer 'later' while the content filter does not answer. Otherwise mail comes in unseen then."`
	CheckAuthentication bool           `toml:"check_authentication" default:"true" doc:"Look into where mail comes from by SPF, DKIM and DMARC. The verdicts are shown with a received email; nothing is refused for them."`
	OperatorTeam        string         `toml:"operator_team" doc:"Id of the operator's own team: it receives mail for postmaster@ and abuse@ of this node's hosts, and notices to teams are sent in its name. Empty: the team that was made first."`
	NoticeFrom          string         `toml:"notice_from" doc:"Sender of notices to teams (a webhook endpoint fails, their domain is claimed), at a domain of the operator's team. Empty: notices are logged and not sent."`
	FeedbackAddresses   []string       `toml:"feedback_address" doc:"Addresses at which mailbox providers' complaints (feedback loops) arrive. What comes there and is no complaint, or a complaint that proves nothing, goes to the operator's team."`
	FeedbackProviders   []string       `toml:"feedback_providers" doc:"Senders whose complaints are believed without a proof of ours: domains that DKIM-sign their reports and where no strangers have mailboxes (arf.mail.example.com), or single addresses (staff@example.com). Needs check_authentication."`
	ManagedDomain       string         `toml:"managed_domain" doc:"Domain under which each team is given a name to receive mail at. Empty: none."`
	SandboxDomains      []string       `toml:"sandbox_domain" default:"resend.dev" doc:"Domains of test addresses: bounced@, delivered@ and the like act out an outcome, and onboarding@ may send to one's own address."`
	SandboxSend         bool           `toml:"sandbox_send" default:"false" doc:"Development: senders of a sandbox domain may send to anyone."`
	TrustDomains        bool           `toml:"trust_domains" default:"false" doc:"Development: a domain that is asked to be verified is found verified a second later, and a claim proven, without DNS."`
	AllowLoopback       bool           `toml:"allow_loopback" default:"false" doc:"Development: webhook endpoints and attachment paths may be on this machine."`

	OIDCIssuer       string   `toml:"oidc_issuer" doc:"OpenID Connect provider by which people may sign in, as its issuer URL such as https://id.example.com. It sends them back to public_url/sign-in/oidc/callback. Empty: none."`
	OIDCClientID     string   `toml:"oidc_client_id" doc:"Id of this installation at that provider."`
	OIDCClientSecret Secret   `toml:"oidc_client_secret" doc:"Its secret there. Empty: a public client, which proves itself by PKCE alone."`
	OIDCName         string   `toml:"oidc_name" doc:"Name of that provider on the page of sign-in. Empty: Single sign-on."`
	OIDCDomains      []string `toml:"oidc_domain" doc:"Domains of addresses, verified by that provider, whose people may become users without an invitation. Which team they join is still to be decided by an invitation."`

	Roles           []string      `toml:"roles" default:"api,delivery,jobs" doc:"What this node does: api, delivery, jobs, submission (SMTP for customers), receiving (mail that comes in, bounces among it). Nodes that share the work need database_url."`
	MigrateOnStart  bool          `toml:"migrate_on_start" default:"true" doc:"Bring the database up to date at the start. Otherwise run the command migrate."`
	LogRetention    time.Duration `toml:"log_retention" default:"720h" doc:"How long API requests are shown in the request log."`
	AuditRetention  time.Duration `toml:"audit_retention" default:"8760h" doc:"How long the audit log is kept: who did what."`
	ImportRetention time.Duration `toml:"import_retention" default:"720h" doc:"How long imports of contacts are shown after they ended, with the rows that failed."`

	EmailRetention    time.Duration `toml:"email_retention" default:"0s" doc:"How long sent emails are kept, with all that belongs to them; those that are still to be delivered stay. Teams may have a shorter time. 0s: without end."`
	BodyRetention     time.Duration `toml:"body_retention" default:"0s" doc:"How long the texts, headers and attachments of sent emails are kept. The emails and what happened to them stay. 0s: as long as the emails."`
	ReceivedRetention time.Duration `toml:"received_retention" default:"0s" doc:"How long received emails are kept. 0s: without end."`
	EventRetention    time.Duration `toml:"event_retention" default:"0s" doc:"How long the timeline of an email and the attempts to deliver it are kept after the last thing that happened to it, and how long recipients of broadcasts and runs of automations are kept after these ended. What metrics count stays. 0s: as long as the emails, the broadcasts and the automations."`

	ShutdownGrace time.Duration `toml:"shutdown_grace" default:"30s" doc:"Time for work in hand when the node is asked to stop. What is not done by then is taken up at the next start."`
	LogLevel      slog.Level    `toml:"log_level" default:"info" doc:"Least level that is logged: debug, info, warn or error."`
	LogFormat     string        `toml:"log_format" default:"text" doc:"text, for people, or json."`

	Regions map[string]Region `toml:"regions" doc:"Hosts per region, in the file only, as tables such as [regions.us-east-1]. What a region leaves out is as above."`
}

// Region is the hosts that the DNS records of a region's domains name.
type Region struct {
	BounceHost   string `toml:"bounce_host"`
	InboundHost  string `toml:"inbound_host"`
	SPFInclude   string `toml:"spf_include"`
	TrackingHost string `toml:"tracking_host"`
}

// Region returns the hosts of a region, or those of the node when the region has no table.
func (c Config) Region(label string) Region {
	if r, ok := c.Regions[label]; ok {
		return r
	}
	return Region{c.BounceHost, c.InboundHost, c.SPFInclude, c.TrackingHost}
}

// Secret is a setting that is hidden when a Config is printed or logged. Convert it to a string to use it.
type Secret string

// String hides the value.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(set)"
}

// GoString hides the value from %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText hides the value from encoders and from slog.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Size is a number of bytes. In text it is a whole number with an optional unit, KB, MB or GB, of 1,024 each.
type Size int64

var _ encoding.TextUnmarshaler = (*Size)(nil)

// UnmarshalText reads a size such as "40MB", "512 kb" or "1000".
func (s *Size) UnmarshalText(text []byte) error {
	t := strings.ToUpper(strings.TrimSpace(string(text)))
	digits := strings.TrimRight(t, "BIKMG ")
	shift := 0
	switch strings.TrimSpace(t[len(digits):]) {
	case "", "B":
	case "K", "KB", "KIB":
		shift = 10
	case "M", "MB", "MIB":
		shift = 20
	case "G", "GB", "GIB":
		shift = 30
	default:
		return fmt.Errorf("%q is not a size: write it as 40MB, 512KB or 1000", text)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return fmt.Errorf("%q is not a size: write it as 40MB, 512KB or 1000", text)
	}
	*s = Size(n << shift)
	return nil
}

// String returns the size in the greatest unit that divides it.
func (s Size) String() string {
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "GB"}, {20, "MB"}, {10, "KB"}} {
		if s != 0 && s%(1<<u.shift) == 0 {
			return strconv.FormatInt(int64(s)>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
