// Package config reads the settings of a node into one typed Config: from built-in defaults, then postrider.toml, then
// POSTRIDER_* variables, then flags. Each source overrides the earlier ones.
//
// # Invariants
//
// A setting is declared once, as a field of Config with tags. From a setting's tags, the package derives its key in the
// file, variable, flag, default, and line in docs/configuration.md. A Config that Load returns without an error is
// valid and complete; it includes values derived from other settings or from the machine.
//
// # Failures
//
// Load returns all problems together, each with the setting, the place of its value, and how to fix it. Unknown keys in
// the file and unknown POSTRIDER_* variables are problems. Variables that Kubernetes sets for Services are ignored.
//
// # Out of scope
//
// A Config does not contain data that changes while the program runs, such as teams' domains, keys and limits, which
// are in the database. Only package cli imports config; cli passes the other packages the values that they need.
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

// Config holds the settings of a node. The struct tags of a setting hold its key, its default as a string, and its
// description for the manual.
type Config struct {
	DataDir           string `toml:"data_dir" default:"data" doc:"Folder of the database, the blobs and the secret key, unless their own settings say otherwise."`
	DatabaseURL       Secret `toml:"database_url" doc:"PostgreSQL as postgres://user:password@host/name. Empty: SQLite in data_dir/postrider.db, for a single node."`
	DatabaseDirectURL Secret `toml:"database_direct_url" doc:"The same PostgreSQL database without a pooler, if database_url leads to a pooler such as PgBouncer in transaction mode (operating/pgbouncer.md). Empty: database_url is used for everything."`
	BlobURL           string `toml:"blob_url" doc:"Storage of raw messages and attachments: a folder, file:///folder, s3://BUCKET?region=... (operating/storage.md lists its parameters), or mem:// (lost at exit). Empty: data_dir/blobs."`
	SecretKey         Secret `toml:"secret_key" doc:"Master key that encrypts secrets and signs links: 64 hexadecimal digits, the same on all nodes. Empty: the key in data_dir/secret.key, which the first start creates. Keep a copy. After a rotation (operating/keys.md), the earlier keys follow, separated by commas."`

	HTTPListen       string         `toml:"http_listen" default:":8080" doc:"Address and port of the API over HTTP without TLS. If https_listen is set, this listener redirects pages to HTTPS, refuses API requests, and answers the challenges of acme, which needs port 80. If it is not set, and https_listen and acme with http-01 are, it is :80."`
	HTTPSListen      string         `toml:"https_listen" doc:"Address and port of HTTPS, such as :443, for the API, the dashboard and customers' tracking hosts. Needs acme, or tls_cert_file and tls_key_file. Empty: none; a reverse proxy before http_listen must serve HTTPS."`
	PublicURL        string         `toml:"public_url" doc:"URL at which clients reach this node, used in links in emails and answers. Empty: https:// and hostname, with the port of https_listen, if that is set. Otherwise http://localhost and the port of http_listen, or the address in http_listen."`
	HTTPProxyFrom    []netip.Prefix `toml:"http_proxy_from" doc:"Trusted proxies before http_listen and https_listen, as prefixes such as 10.0.0.0/8. The client is the last address in X-Forwarded-For that is not in this list. Requests with X-Forwarded-Proto: https count as encrypted. Behind a proxy, opens, clicks and limits per address need this setting."`
	Hostname         string         `toml:"hostname" doc:"Name of this node in EHLO and Message-IDs. Its address record must lead to this node, and the PTR record of the address must lead back to the name. Empty: the name of the machine."`
	RateLimit        int            `toml:"rate_limit" live:"true" default:"10" doc:"Requests per second that a team may make, to all nodes of a database together. 0: no limit."`
	RequireUserAgent bool           `toml:"require_user_agent" default:"false" doc:"Refuse API requests without a User-Agent header."`
	TrialDaily       int            `toml:"trial_daily" live:"true" default:"0" doc:"Daily quota of emails, sent and received, for each new team. The first team gets no quota. postrider teams limit changes a team's quota. 0: no quota."`
	TrialMonthly     int            `toml:"trial_monthly" live:"true" default:"0" doc:"Monthly quota of emails for each new team, like trial_daily. 0: no quota."`
	LegacyAliases    bool           `toml:"legacy_aliases" default:"true" doc:"Also serve operations under the other paths that older and official clients use: /email, /emails/sending, /email/sending, /domains/claims. Also accept the older prefix of the value that proves a claim: resend-domain-verification=."`
	AttachmentMax    Size           `toml:"attachment_max" default:"40MB" doc:"Maximum size of a message with its encoded attachments."`
	ImportMaxSize    Size           `toml:"import_max_size" default:"50MB" doc:"Maximum size of a file of contacts to import."`

	Transport        string          `toml:"transport" default:"direct" doc:"How mail leaves: direct (to the recipients' mail hosts), relay (through relay_addr and relays), or capture (stored in the blobs, never sent; the command dev shows it)."`
	RelayAddr        string          `toml:"relay_addr" live:"true" doc:"Address of the relay, as host:port; the short form of one relay in relays. The command dev can release emails in its outbox to it."`
	RelayUsername    string          `toml:"relay_username" live:"true" doc:"User name at the relay. Empty: no authentication."`
	RelayPassword    Secret          `toml:"relay_password" live:"true" doc:"Password at the relay."`
	RelayTLS         string          `toml:"relay_tls" live:"true" default:"opportunistic" doc:"TLS towards the relay: opportunistic (STARTTLS if offered), required (STARTTLS with a valid certificate), implicit (TLS from the first byte), or none. With relay_username, opportunistic means required, unless the relay is on this machine. Mail of a domain with enforced TLS needs a valid certificate for the host of relay_addr under opportunistic and none too. The exception is a relay on this machine under none."`
	DestinationsFile string          `toml:"destinations_file" live:"true" doc:"TOML file with limits, TLS, retries, pauses and relays for some destinations. The page operating/destinations.md describes it. Postrider reads the file again when it changes. Empty: none."`
	SMTPPort         int             `toml:"smtp_port" default:"25" doc:"Port that the direct transport connects to. Use other values than 25 only for tests."`
	DNSServers       []string        `toml:"dns_servers" doc:"DNS resolvers, as address or address:port. Empty: the resolvers of the system."`
	DNSSECResolvers  []string        `toml:"dnssec_resolvers" doc:"DNS resolvers that validate signatures (DNSSEC), as address or address:port. All look-ups of mail hosts ask these first, and Postrider believes their verdict. Name only resolvers on this machine, or behind a protected link. Empty: the resolvers of dns_servers, or of the system, that have a loopback address."`
	DANE             bool            `toml:"dane" default:"true" doc:"Obey the TLSA records of mail hosts (DANE), with the transport direct. This has an effect only with a DNS resolver that validates signatures: one that dnssec_resolvers names, or one with a loopback address."`
	MTASTS           bool            `toml:"mta_sts" default:"true" doc:"Obey the MTA-STS policies of recipients' domains, with the transport direct."`
	MTASTSPort       int             `toml:"mta_sts_port" default:"443" doc:"Port from which MTA-STS policies are fetched. Use other values than 443 only for tests."`
	DeliveryWorkers  int             `toml:"delivery_workers" default:"0" doc:"Number of concurrent deliveries. 0: four per CPU, at least 16."`
	Signers          int             `toml:"signers" default:"0" doc:"Number of concurrent DKIM signatures. 0: one per CPU."`
	RetrySchedule    []time.Duration `toml:"retry_schedule" live:"true" default:"1m,5m,15m,30m,1h,2h,4h,8h,8h,8h,8h,8h" doc:"Waits between delivery attempts, each with a small random variation. The email bounces after the last one."`
	LaneConcurrency  int             `toml:"lane_concurrency" default:"20" doc:"Maximum number of concurrent connections to one destination, of all nodes of a database together. It also limits the connections to one address, even if several destinations lead to it. Postrider begins with one connection, and each answer of the destination adds others. A relay gets this many connections at once and more if it answers slowly, up to connections_max."`
	LaneRate         float64         `toml:"lane_rate" live:"true" default:"0" doc:"Messages per second to one destination, from all nodes of a database together. 0: no limit."`
	ConnectionsMax   int             `toml:"connections_max" default:"500" doc:"Maximum number of concurrent connections from this node to all destinations. A relay may use all of them."`

	WebhookSchedule     []time.Duration `toml:"webhook_schedule" default:"5s,5m,30m,2h,5h,10h,10h" doc:"Waits between attempts to deliver a webhook, each with a small random variation. After the last one the delivery has failed, and can be replayed."`
	WebhookDisableAfter time.Duration   `toml:"webhook_disable_after" default:"120h" doc:"A webhook endpoint is disabled after it has only failed for this long."`
	WebhookRetention    time.Duration   `toml:"webhook_retention" live:"true" default:"720h" doc:"How long webhook events and their attempts are kept."`

	BroadcastBounceLimit    float64 `toml:"broadcast_bounce_limit" default:"5" doc:"A broadcast pauses when more than this percentage of its sent emails has bounced permanently. The check begins at 200 sent emails. 100: never."`
	BroadcastComplaintLimit float64 `toml:"broadcast_complaint_limit" default:"0.3" doc:"A broadcast pauses when more than this percentage of its sent emails has led to complaints. The check begins at 1,000 sent emails. Large mailbox providers refuse a sender's mail from a rate of 0.3 percent on. 100: never."`

	BounceHost             string `toml:"bounce_host" doc:"Host that receives bounces: the MX of the customers' return paths. Empty: hostname."`
	InboundHost            string `toml:"inbound_host" doc:"Host that receives mail for customers' domains: their MX. Empty: hostname."`
	ReportHost             string `toml:"report_host" doc:"Host of the addresses to which DMARC and TLS reports about customers' domains go. Its MX record must lead to a node with the role receiving. Empty: inbound_host of the domain's region."`
	SPFInclude             string `toml:"spf_include" doc:"Name whose SPF record lists the sending addresses. Customers include it in their SPF records. Empty: hostname."`
	TrackingHost           string `toml:"tracking_host" doc:"Host that customers' tracking domains point to with a CNAME record. Empty: the host of public_url."`
	TrackingURL            string `toml:"tracking_url" doc:"Base URL of tracked links and pixels of domains without a verified tracking_subdomain, and of all domains with trust_domains. Empty: no tracking in domains without one. Links of the other domains begin with https:// and their tracking domain, which needs https_listen with acme, or a proxy before http_listen that has a certificate for it."`
	DKIMSelector           string `toml:"dkim_selector" default:"postrider" doc:"DKIM selector of the RSA key of customers' domains."`
	DKIMSelectorEd25519    string `toml:"dkim_selector_ed25519" default:"postrider-ed" doc:"DKIM selector of the Ed25519 key of customers' domains."`
	DKIMRotation           int    `toml:"dkim_rotation" default:"90" doc:"Age in days at which the DKIM keys of delegated domains and of domains with CNAME records are replaced. For other domains, a next key is created at twice this age, and used after its record is published. From 30 to 1000. 0: only on request."`
	CAAIssuer              string `toml:"caa_issuer" default:"letsencrypt.org" doc:"Certificate authority that a CAA record of a tracking domain must allow."`
	DNSProvidersFile       string `toml:"dns_providers_file" doc:"TOML file of DNS providers that Postrider recognizes, with the format that their forms expect. It replaces the built-in list. The page operating/settings.md explains the keys. Empty: the built-in list."`
	DomainConnectProvider  string `toml:"domain_connect_provider" doc:"Domain of the operator that identifies this installation's template at DNS providers (Domain Connect), such as example.com. Providers that have the template can then add the records of customers' domains automatically. Empty: off. The page operating/domain-connect.md describes it."`
	DomainConnectService   string `toml:"domain_connect_service" default:"email" doc:"Name of the template at DNS providers: letters, digits, hyphens and dots."`
	DomainConnectKeyDomain string `toml:"domain_connect_key_domain" doc:"Domain below which the public key of Domain Connect is published. Empty: domain_connect_provider."`
	BIMIRootsFile          string `toml:"bimi_roots_file" doc:"PEM file with the root certificates of mark authorities. Postrider verifies the mark certificates of BIMI records with them. Empty: the chains are not checked."`
	SMTPSubmitListen       string `toml:"smtp_submit_listen" default:":587" doc:"Address and port of SMTP submission with STARTTLS, with the role submission. Empty: none."`
	SMTPSubmitsListen      string `toml:"smtp_submits_listen" default:":465" doc:"Address and port of SMTP submission with TLS from the first byte, with the role submission. Empty: none."`
	SMTPSubmitConnections  int    `toml:"smtp_submit_connections" default:"500" doc:"Maximum number of concurrent connections to each of the two submission ports."`
	SMTPSubmitPerAddress   int    `toml:"smtp_submit_per_address" default:"50" doc:"Maximum number of concurrent submission connections from one IPv4 address or one IPv6 /64. 0: no limit."`
	SMTPSubmitClear        bool   `toml:"smtp_submit_clear" default:"false" doc:"Development: accept passwords without TLS if smtp_submit_listen is a loopback address."`
	TLSCertFile            string `toml:"tls_cert_file" doc:"Certificate of the HTTPS and SMTP listeners with its chain, in PEM. Postrider reads the file again when it changes. Hosts that it does not cover get a certificate from acme. Empty: acme, or a self-signed certificate for SMTP."`
	TLSKeyFile             string `toml:"tls_key_file" doc:"Key of that certificate, in PEM."`

	ACME                bool     `toml:"acme" default:"false" doc:"Get certificates from the authority at acme_directory, and renew them. Set it to true only if you agree to the authority's terms of service."`
	ACMEDirectory       string   `toml:"acme_directory" default:"https://acme-v02.api.letsencrypt.org/directory" doc:"URL of the directory of an ACME certificate authority."`
	ACMEEmail           string   `toml:"acme_email" doc:"Address at which the authority may contact you. May be empty at most authorities."`
	ACMEEABKeyID        string   `toml:"acme_eab_key_id" doc:"Key identifier of the external account binding (RFC 8555 section 7.3.4), if the authority gives certificates only to its customers. Empty: none."`
	ACMEEABKey          Secret   `toml:"acme_eab_key" doc:"Key of the external account binding (HMAC), in base64url as the authority shows it."`
	ACMECAFile          string   `toml:"acme_ca_file" doc:"PEM file with the root certificate of acme_directory, for a private authority. Empty: the roots of the system."`
	ACMEChallenges      []string `toml:"acme_challenges" default:"http-01,tls-alpn-01" doc:"How the authority checks a host: http-01 (port 80 of the host must lead to http_listen), tls-alpn-01 (port 443 of the host must lead to https_listen), or both."`
	ACMEDNSServer       string   `toml:"acme_dns_server" doc:"Name server that accepts updates of acme_dns_zone (RFC 2136), as address:port. The authority then checks this installation's hosts in the zone by DNS (dns-01); customers' hosts are still checked by acme_challenges. Empty: none."`
	ACMEDNSZone         string   `toml:"acme_dns_zone" doc:"Zone that acme_dns_server updates."`
	ACMEDNSKeyName      string   `toml:"acme_dns_key_name" doc:"Name of the TSIG key for updates."`
	ACMEDNSKeyAlgorithm string   `toml:"acme_dns_key_algorithm" default:"hmac-sha256" doc:"Algorithm of the TSIG key: hmac-sha1, hmac-sha224, hmac-sha256, hmac-sha384 or hmac-sha512."`
	ACMEDNSKeySecret    Secret   `toml:"acme_dns_key_secret" doc:"Secret of the TSIG key, in base64."`
	ACMEDNSHook         string   `toml:"acme_dns_hook" doc:"Program that publishes TXT records, instead of acme_dns_server. It is run with the arguments present or cleanup, the name of the record and its value. The page operating/https.md describes it. Empty: none."`

	SMTPInListen        string         `toml:"smtp_in_listen" default:":25" doc:"Address and port that receive mail, with the role receiving."`
	SMTPInMaxSize       Size           `toml:"smtp_in_max_size" default:"40MB" doc:"Maximum size of a received message."`
	SMTPInConnections   int            `toml:"smtp_in_connections" default:"1000" doc:"Maximum number of concurrent connections to smtp_in_listen."`
	SMTPInPerAddress    int            `toml:"smtp_in_per_address" default:"50" doc:"Maximum number of these connections from one IPv4 address or one IPv6 /64. 0: no limit."`
	SMTPProxyFrom       []netip.Prefix `toml:"smtp_proxy_from" doc:"Trusted proxies before the SMTP ports, as prefixes such as 10.0.0.0/8. Their connections begin with a PROXY header (version 1 or 2) that names the client."`
	DNSListen           []string       `toml:"dns_listen" default:":53" doc:"Addresses and ports of the name server, over UDP and TCP, with the role dns. If another DNS server runs on this machine, name only the public addresses, such as 192.0.2.1:53, [2001:db8::1]:53."`
	DNSNames            []string       `toml:"dns_names" doc:"Names of this installation's name servers. Each must be a node with the role dns. Use the same order on all nodes, and do not change it later. The page operating/dns.md describes the role. Empty: none."`
	DNSZone             string         `toml:"dns_zone" doc:"Zone that is delegated to dns_names, such as dns.mail.example.com. Use it for nothing else. Customers' DNS records point to names in it. Empty: none."`
	DNSContact          string         `toml:"dns_contact" doc:"Email address of the person who is responsible for the zones, as their SOA records show it. Use the same address on all nodes. Empty: the address of notice_from, or else hostmaster at dns_zone."`
	DNSAddresses        []string       `toml:"dns_addresses" doc:"Public addresses of dns_names, as name=address, such as ns1.dns.mail.example.com=192.0.2.1. Each name needs one, and may have several. Needed with dns_zone."`
	DNSRateLimit        int            `toml:"dns_rate_limit" default:"20" doc:"Maximum number of UDP responses per second to one client network (an IPv4 /24 or an IPv6 /56) with the same records, the same negative answer or an error. Half of the further queries get a truncated response, so that honest clients retry over TCP. A network gets at most 50 times as many responses in total. 0: no limit."`
	Milter              string         `toml:"milter" doc:"Content filter (milter) that checks received mail: unix:/path or inet:host:port. Empty: none."`
	MilterRequired      bool           `toml:"milter_required" default:"false" doc:"Refuse mail temporarily while the content filter does not answer. Otherwise mail is then accepted without a check."`
	CheckAuthentication bool           `toml:"check_authentication" default:"true" doc:"Check received mail by SPF, DKIM and DMARC. Received emails show the results; no mail is refused because of them."`
	OperatorTeam        string         `toml:"operator_team" doc:"Id of the operator's own team. It receives mail for postmaster@ and abuse@ of this node's hosts, and is the sender of notices to teams. Empty: the oldest team."`
	NoticeFrom          string         `toml:"notice_from" doc:"Sender of notices to teams (for example that a webhook endpoint fails, or that somebody claims their domain). Its domain must belong to the operator's team. Empty: notices are logged and not sent."`
	TLSReports          bool           `toml:"tls_reports" default:"true" doc:"Send TLS reports (RFC 8460): each day, domains that ask for them in a DNS record learn how many connections to their mail hosts were secure or failed. The sender is notice_from. Needs the transport direct and notice_from."`
	DMARCReports        bool           `toml:"dmarc_reports" default:"false" doc:"Send DMARC aggregate reports (RFC 9990) about received mail. Each day, domains that request reports in their DMARC record get one. It lists the addresses that sent mail in their name, and whether the mail passed. The sender is notice_from. Needs notice_from and check_authentication."`
	FeedbackAddresses   []string       `toml:"feedback_address" doc:"Addresses that receive complaints (feedback loops) of mailbox providers. Mail to them that is not a complaint, or a complaint without proof, goes to the operator's team."`
	ARCTrustedSealers   []string       `toml:"arc_trusted_sealers" doc:"Domains of forwarders whose ARC seals you trust (lists.example.com). If all seals of a message are theirs, and the first one says that DMARC passed, no DMARC policy applies to it. Needs check_authentication."`
	FeedbackProviders   []string       `toml:"feedback_providers" doc:"Senders whose complaints need no proof: domains that DKIM-sign their reports and where the public cannot get mailboxes (arf.mail.example.com), or single addresses (staff@example.com). Needs check_authentication."`
	CFBL                bool           `toml:"cfbl" default:"true" doc:"Tell mailbox providers in bulk mail where to send complaints (RFC 9477), if feedback_address is set: its first address, if the sender's domain is that of the address or a parent of it, and otherwise fbl@ at the return path of the sender's domain."`
	FeedbackSenderID    string         `toml:"feedback_sender_id" doc:"Identifier of this installation in the header field Feedback-ID of all emails, by which Gmail's Postmaster Tools group complaints: 5 to 15 letters, digits, hyphens or underscores. Do not change it later. Empty: made from the registrable domain of hostname."`
	ManagedDomain       string         `toml:"managed_domain" doc:"Domain under which each team gets a subdomain that receives mail. Empty: none."`
	SandboxDomains      []string       `toml:"sandbox_domain" default:"resend.dev" doc:"Domains of test addresses. Mail to bounced@, delivered@ and similar addresses simulates an outcome. Mail from onboarding@ may go to one's own address."`
	SandboxSend         bool           `toml:"sandbox_send" default:"false" doc:"Development: senders of a sandbox domain may send to anyone."`
	TrustDomains        bool           `toml:"trust_domains" default:"false" doc:"Development: a domain counts as verified one second after the request to verify it, and a claim as proven, without DNS."`
	AllowLoopback       bool           `toml:"allow_loopback" default:"false" doc:"Development: webhook endpoints and attachment paths may be on this machine."`
	AllowNetworks       []netip.Prefix `toml:"allow_networks" live:"true" doc:"Networks that webhooks, webhook steps of automations and attachment paths may reach although their addresses are not public, as prefixes such as 10.8.0.0/16. Every team can reach them. Loopback addresses, the listeners of this node, and the addresses at which clouds give out credentials stay refused."`
	DenyNetworks        []netip.Prefix `toml:"deny_networks" live:"true" doc:"Networks that webhooks, webhook steps and attachment paths must not reach, although their addresses are public or in allow_networks."`

	OIDCIssuer       string   `toml:"oidc_issuer" doc:"Issuer URL of an OpenID Connect provider for sign-in, such as https://id.example.com. The provider redirects users to public_url/sign-in/oidc/callback. Empty: none."`
	OIDCClientID     string   `toml:"oidc_client_id" doc:"Client id of this installation at the OpenID Connect provider."`
	OIDCClientSecret Secret   `toml:"oidc_client_secret" doc:"Client secret of this installation at the provider. Empty: a public client, which uses only PKCE."`
	OIDCName         string   `toml:"oidc_name" doc:"Name of the provider on the sign-in page. Empty: Single sign-on."`
	OIDCDomains      []string `toml:"oidc_domain" doc:"Domains of email addresses whose owners may become users without an invitation, if the provider has verified the address. They still need an invitation to join a team."`

	Roles           []string      `toml:"roles" default:"api,delivery,jobs" doc:"Roles of this node: api, delivery, jobs, submission (SMTP for customers), receiving (incoming mail and bounces), dns (name server for customers' domains). Nodes that share the work need database_url."`
	MigrateOnStart  bool          `toml:"migrate_on_start" default:"true" doc:"Migrate the database at the start. Otherwise run the command migrate."`
	LogRetention    time.Duration `toml:"log_retention" live:"true" default:"720h" doc:"How long the request log keeps API requests."`
	AuditRetention  time.Duration `toml:"audit_retention" live:"true" default:"8760h" doc:"How long audit log entries are kept."`
	ImportRetention time.Duration `toml:"import_retention" live:"true" default:"720h" doc:"How long finished contact imports are kept, with their failed rows."`

	ReportRetention   time.Duration `toml:"report_retention" default:"2160h" doc:"How long the counts of DMARC and TLS reports about customers' domains are kept. The files of the reports are deleted after 30 days at the latest."`
	EmailRetention    time.Duration `toml:"email_retention" live:"true" default:"0s" doc:"How long sent emails are kept, with all their data. Emails that are still being delivered stay. A team may have a shorter time. 0s: forever."`
	BodyRetention     time.Duration `toml:"body_retention" live:"true" default:"0s" doc:"How long the texts, headers and attachments of sent emails are kept. The emails and their events stay. 0s: as long as the emails."`
	ReceivedRetention time.Duration `toml:"received_retention" live:"true" default:"0s" doc:"How long received emails are kept. 0s: forever."`
	EventRetention    time.Duration `toml:"event_retention" live:"true" default:"0s" doc:"How long an email's timeline and delivery attempts are kept after its last event. It also applies to recipients of broadcasts and to automation runs, counted from the end of the broadcast or the run. Counts in metrics stay. 0s: as long as the emails, the broadcasts and the automations."`

	PartitionBy string `toml:"partition_by" default:"month" doc:"PostgreSQL only: the time that one partition of the tables of emails, the request log and webhook events covers: day, week or month. A shorter time lets old data be dropped rather than deleted, but the lists of teams that seldom send become slower with the number of partitions. A change applies to partitions that do not exist yet."`

	ShutdownGrace  time.Duration `toml:"shutdown_grace" default:"30s" doc:"Time to finish current work when the node is stopped. The next start continues unfinished work."`
	LogLevel       slog.Level    `toml:"log_level" live:"true" default:"info" doc:"Minimum level of log messages: debug, info, warn or error."`
	MetricsListen  string        `toml:"metrics_listen" doc:"Address and port of /metrics for Prometheus, /debug/pprof/, /healthz and /readyz, such as 127.0.0.1:9464. Anybody who can reach this address can read them, because they need no authentication. Empty: none."`
	AlertTo        []Secret      `toml:"alert_to" live:"true" doc:"Where alarms go: email addresses, to which the operator's team sends from notice_from, and https URLs, which get JSON. The alarms are: emails wait too long, less than 10 % of a disk is free, a certificate expires within 14 days or cannot be obtained, the file of destinations is invalid, no DNS server validates signatures, TLSA records do not match a certificate, policies of recipient domains stop mail, the name server has a problem with its zones, DMARC reports say that DKIM signatures fail, and the last backup is too old. Empty: no alarms."`
	AlertQueueAge  time.Duration `toml:"alert_queue_age" live:"true" default:"10m" doc:"An alarm begins when an email that is not bulk mail has been due for longer. 0s: never."`
	AlertBackupAge time.Duration `toml:"alert_backup_age" live:"true" default:"48h" doc:"An alarm begins when the last recorded backup is older. If there is none, the age of the database counts. 0s: never."`
	OTLPEndpoint   string        `toml:"otlp_endpoint" doc:"Base URL of an OpenTelemetry collector that gets traces of requests and deliveries (OTLP over HTTP, JSON), such as http://127.0.0.1:4318. Empty: no traces."`
	OTLPHeaders    Secret        `toml:"otlp_headers" doc:"Header fields for the collector, such as an access token: name=value, separated by commas."`
	OTLPSample     float64       `toml:"otlp_sample" default:"1" doc:"Part of the traces that is sent, from 0 to 1."`
	LogFormat      string        `toml:"log_format" default:"text" doc:"Format of log messages: text, for people, or json."`

	DoctorMailDomains  []string `toml:"doctor_mail_domains" live:"true" default:"gmail.com,outlook.com,yahoo.com" doc:"Domains to whose mail hosts postrider doctor connects, to find out whether this machine can reach port 25 of other servers. It sends them no email."`
	DoctorSignedName   string   `toml:"doctor_signed_name" live:"true" default:"ietf.org" doc:"Name that has an address (A record) with a valid DNSSEC signature. postrider doctor looks it up to find out whether dns_servers validate signatures. Empty: not checked."`
	DoctorBogusName    string   `toml:"doctor_bogus_name" live:"true" default:"dnssec-failed.org" doc:"Name with a wrong DNSSEC signature, for which a validating server answers with an error. Empty: not checked."`
	DoctorClockURL     string   `toml:"doctor_clock_url" live:"true" doc:"URL of a server whose clock postrider doctor compares with the clock of this machine (header Date). Empty: acme_directory."`
	DoctorAddressLists []string `toml:"doctor_address_lists" live:"true" doc:"DNS zones of block lists of addresses, such as zen.spamhaus.org, in which postrider doctor looks for the addresses of hostname. Read the terms of a list before you use it. Empty: none."`
	DoctorNameLists    []string `toml:"doctor_name_lists" live:"true" doc:"DNS zones of block lists of domains, such as dbl.spamhaus.org, in which postrider doctor looks for this installation's own names. Empty: none."`

	Relays []Relay `toml:"relays" live:"true" doc:"Relays in order, only in the file, as tables [[relays]]. The next one is tried if one does not answer or refuses the connection."`

	Regions map[string]Region `toml:"regions" doc:"Hosts per region, only in the file, as tables such as [regions.us-east-1]. A host that a region omits has the value of the setting above."`
}

// Region holds the host names that the DNS records of a region's domains refer to.
type Region struct {
	BounceHost   string `toml:"bounce_host"`
	InboundHost  string `toml:"inbound_host"`
	SPFInclude   string `toml:"spf_include"`
	TrackingHost string `toml:"tracking_host"`
}

// Region returns the host names of a region, or the node's own host names if the region is not configured.
func (c Config) Region(label string) Region {
	if r, ok := c.Regions[label]; ok {
		return r
	}
	return Region{c.BounceHost, c.InboundHost, c.SPFInclude, c.TrackingHost}
}

// Secret is a setting whose value is hidden when a Config is printed or logged. Convert a Secret to a string to use its
// value.
type Secret string

// String returns a placeholder instead of the secret value.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(set)"
}

// GoString hides the secret value from %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText hides the secret value from encoders and from slog.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Size is a number of bytes. In string form, a Size is a whole number with an optional unit KB, MB or GB, based on
// 1,024.
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

// String formats the size with the largest unit that divides it.
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
