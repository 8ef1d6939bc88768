package config

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

// source returns a Source with one configuration file and the given variables and flags.
func source(file string, env map[string]string, args ...string) Source {
	return Source{
		Given:   flags(args...),
		Environ: environ(env),
		ReadFile: func(name string) ([]byte, error) {
			if name != DefaultFile || file == "" {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return []byte(file), nil
		},
		Hostname: func() (string, error) { return "Node1.Example.COM.", nil },
	}
}

// flags returns the values of flags such as --rate-limit=3 or --acme by name.
func flags(args ...string) map[string]string {
	given := map[string]string{}
	for _, arg := range args {
		name, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !ok {
			value = "true"
		}
		given[name] = value
	}
	return given
}

// environ returns a function that lists variables.
func environ(env map[string]string) func() []string {
	return func() (all []string) {
		for name, value := range env {
			all = append(all, name+"="+value)
		}
		return all
	}
}

func load(t *testing.T, src Source) Config {
	t.Helper()
	c, err := Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	want := Config{
		DataDir: "data", BlobURL: filepath.Join("data", "blobs"),
		HTTPListen: ":8080", PublicURL: "http://localhost:8080", Hostname: "node1.example.com",
		RateLimit: 10, LegacyAliases: true, AttachmentMax: 40 << 20, ImportMaxSize: 50 << 20, BroadcastBounceLimit: 5,
		BroadcastComplaintLimit: 0.3,
		Transport:               "direct", RelayTLS: "opportunistic", SMTPPort: 25, DANE: true, MTASTS: true, MTASTSPort: 443,
		DeliveryWorkers: max(16, 4*runtime.NumCPU()), Signers: runtime.NumCPU(),
		RetrySchedule: []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
			2 * time.Hour, 4 * time.Hour,
			8 * time.Hour, 8 * time.Hour, 8 * time.Hour, 8 * time.Hour, 8 * time.Hour},
		LaneConcurrency: 20, ConnectionsMax: 500,
		WebhookSchedule: []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
			10 * time.Hour,
			10 * time.Hour}, WebhookDisableAfter: 5 * 24 * time.Hour, WebhookRetention: 30 * 24 * time.Hour,
		BounceHost: "node1.example.com", InboundHost: "node1.example.com", SPFInclude: "node1.example.com",
		TrackingHost: "localhost",
		DKIMSelector: "postrider", DKIMSelectorEd25519: "postrider-ed", DKIMRotation: 90, CAAIssuer: "letsencrypt.org",
		DomainConnectService: "email",
		SMTPSubmitListen:     ":587", SMTPSubmitsListen: ":465", SMTPSubmitConnections: 500, SMTPSubmitPerAddress: 50,
		ACMEDirectory:  "https://acme-v02.api.letsencrypt.org/directory",
		ACMEChallenges: []string{"http-01", "tls-alpn-01"}, ACMEDNSKeyAlgorithm: "hmac-sha256",
		SMTPInListen: ":25", SMTPInMaxSize: 40 << 20, SMTPInConnections: 1000, SMTPInPerAddress: 50, DNSListen: []string{":53"}, DNSRateLimit: 20,
		CheckAuthentication: true, TLSReports: true, CFBL: true, FeedbackSenderID: "examplecom",
		SandboxDomains: []string{"resend.dev"},
		Roles:          []string{"api", "delivery", "jobs"}, MigrateOnStart: true, PartitionBy: "month",
		LogRetention: 720 * time.Hour, AuditRetention: 8760 * time.Hour, ImportRetention: 720 * time.Hour, ReportRetention: 90 * 24 * time.Hour,
		ShutdownGrace: 30 * time.Second,
		AlertQueueAge: 10 * time.Minute, AlertBackupAge: 48 * time.Hour, OTLPSample: 1,
		LogLevel: slog.LevelInfo, LogFormat: "text",
		DoctorMailDomains: []string{"gmail.com", "outlook.com", "yahoo.com"}, DoctorSignedName: "ietf.org",
		DoctorBogusName: "dnssec-failed.org", DoctorClockURL: "https://acme-v02.api.letsencrypt.org/directory",
	}
	if diff := cmp.Diff(want, load(t, source("", nil))); diff != "" {
		t.Errorf("Load of nothing (-want +got):\n%s", diff)
	}
}

func TestLaterSourcesOverrideEarlierOnes(t *testing.T) {
	t.Parallel()
	file := `
		http_listen = "127.0.0.1:1"
		hostname = "file.example.com"
		rate_limit = 5
		lane_rate = 0.5
		require_user_agent = true
		roles = ["api"]
		retry_schedule = ["1s", "2m"]
		attachment_max = "10MB"
		log_level = "debug"
		shutdown_grace = "5s"`
	env := map[string]string{
		"POSTRIDER_HTTP_LISTEN": "127.0.0.1:2", "POSTRIDER_RATE_LIMIT": "6", "POSTRIDER_ROLES": "api, jobs,",
		"POSTRIDER_RETRY_SCHEDULE": "3s,4m",
		"POSTRIDER_HOSTNAME":       "",
	}
	src := source(file, env, "--http-listen=127.0.0.1:3", "--sandbox-send", "--legacy-aliases=false", "--log-level=WARN")
	src.Defaults = map[string]string{"rate_limit": "1", "transport": "capture", "shutdown_grace": "1s"}
	c := load(t, src)
	type picked struct {
		Listen, Hostname, Transport string
		Rate                        int
		LaneRate                    float64
		Agent, Sandbox, Aliases     bool
		Roles                       []string
		Retry                       []time.Duration
		Max                         Size
		Level                       slog.Level
		Grace                       time.Duration
	}
	got := picked{c.HTTPListen, c.Hostname, c.Transport, c.RateLimit, c.LaneRate, c.RequireUserAgent, c.SandboxSend,
		c.LegacyAliases,
		c.Roles, c.RetrySchedule, c.AttachmentMax, c.LogLevel, c.ShutdownGrace}
	want := picked{"127.0.0.1:3", "file.example.com", "capture", 6, 0.5, true, true, false,
		[]string{"api", "jobs"}, []time.Duration{3 * time.Second, 4 * time.Minute}, 10 << 20, slog.LevelWarn, 5 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
}

func TestFileIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, name := range []string{"a.toml", "b.toml"} {
		if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, "rate_limit = %d", i+1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	src := source("rate_limit = 9", map[string]string{"POSTRIDER_CONFIG": filepath.Join(dir, "a.toml")})
	src.ReadFile = nil // use os.ReadFile
	if c := load(t, src); c.RateLimit != 1 {
		t.Errorf("rate_limit = %d, want that of the file in POSTRIDER_CONFIG", c.RateLimit)
	}
	src.Given = flags("--config=" + filepath.Join(dir, "b.toml"))
	if c := load(t, src); c.RateLimit != 2 {
		t.Errorf("rate_limit = %d, want that of the file in --config", c.RateLimit)
	}
	src.Given = flags("--config=" + filepath.Join(dir, "c.toml"))
	if _, err := Load(src); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a named file that is not there: %v", err)
	}
}

// Without a named file, the file in the working directory comes before that of the system. A working directory that
// belongs to another user does not hide the system's file.
func TestSystemFile(t *testing.T) {
	t.Parallel()
	files := map[string]any{SystemFile: `hostname = "system.example.com"`}
	src := Source{SystemFile: SystemFile, Environ: environ(nil),
		ReadFile: func(name string) ([]byte, error) {
			switch v := files[name].(type) {
			case string:
				return []byte(v), nil
			case error:
				return nil, v
			}
			return nil, fs.ErrNotExist
		}}
	expect := func(want string) {
		t.Helper()
		if got := load(t, src).Hostname; got != want {
			t.Errorf("hostname is %q, want %q", got, want)
		}
	}
	expect("system.example.com")
	files[DefaultFile] = fs.ErrPermission
	expect("system.example.com")
	files[DefaultFile] = `hostname = "here.example.com"`
	expect("here.example.com")
	delete(files, DefaultFile)
	files[SystemFile] = fs.ErrPermission
	if _, err := Load(src); err == nil || !strings.Contains(err.Error(), "run this command as the user of the node") {
		t.Errorf("the error is %v", err)
	}
}

func TestRegions(t *testing.T) {
	t.Parallel()
	c := load(t, source(`
		bounce_host = "bounce.example.com"
		public_url = "https://mail.example.com/"
		[regions.us-east-1]
		bounce_host = "Bounce.US.example.com."
		spf_include = "_spf.us.example.com"
		[regions.eu-west-1]`, nil))
	node := Region{"bounce.example.com", "node1.example.com", "node1.example.com", "mail.example.com"}
	tests := map[string]Region{
		"us-east-1": {"bounce.us.example.com", "node1.example.com", "_spf.us.example.com", "mail.example.com"},
		"eu-west-1": node,
		"unknown":   node,
	}
	for label, want := range tests {
		if diff := cmp.Diff(want, c.Region(label)); diff != "" {
			t.Errorf("Region %s (-want +got):\n%s", label, diff)
		}
	}
	if c.PublicURL != "https://mail.example.com" {
		t.Errorf("public_url = %s, want it without the slash", c.PublicURL)
	}
}

func TestDerived(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		":8080": "http://localhost:8080", "0.0.0.0:80": "http://localhost", "[::]:8025": "http://localhost:8025",
		"10.0.0.1:9": "http://10.0.0.1:9", "127.0.0.1:9": "http://localhost:9", "127.0.0.2:9": "http://127.0.0.2:9",
		"[::1]:80": "http://[::1]", "[::1]:81": "http://[::1]:81", "mail.test:80": "http://mail.test",
	} {
		if c := load(t, source("", nil, "--http-listen="+listen, "--tracking-host=t.test")); c.PublicURL != want {
			t.Errorf("public_url at %s = %s, want %s", listen, c.PublicURL, want)
		}
	}
	c := load(t, source("", nil, "--dns-servers=9.9.9.9, 1.1.1.1:5353,2620:fe::fe,[::1]:53", "--delivery-workers=3",
		"--signers=7", "--dnssec-resolvers=127.0.0.1,[::1]:5353,10.0.0.53:53"))
	if diff := cmp.Diff([]string{"127.0.0.1:53", "[::1]:5353", "10.0.0.53:53"}, c.DNSSECResolvers); diff != "" {
		t.Errorf("dnssec_resolvers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"9.9.9.9:53", "1.1.1.1:5353", "[2620:fe::fe]:53", "[::1]:53"}, c.DNSServers); diff != "" {
		t.Errorf("dns_servers (-want +got):\n%s", diff)
	}
	if c.DeliveryWorkers != 3 || c.Signers != 7 {
		t.Errorf("workers = %d, signers = %d; want those given", c.DeliveryWorkers, c.Signers)
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	long := make([]string, 101)
	for i := range long {
		long[i] = "1m"
	}
	tests := []struct {
		name, file string
		args       []string
		want       string
	}{
		{"short feedback sender", `feedback_sender_id = "acme"`, nil, `"acme" must have 5 to 15 letters`},
		{"long feedback sender", `feedback_sender_id = "abcdefghijklmnop"`, nil, "must have 5 to 15 letters"},
		{"feedback sender with a colon", `feedback_sender_id = "acme:1"`, nil, "must have 5 to 15 letters"},
		{"feedback sender like a stream", `feedback_sender_id = "transactional"`, nil, "must not be transactional"},
		{"feedback sender like a team", `feedback_sender_id = "team-acme"`, nil, "begin with team-"},
		{"feedback provider", `feedback_providers = ["not a domain"]`, nil,
			`"not a domain" is neither a domain nor an address`},
		{"feedback provider's address", `feedback_providers = ["@b.example"]`, nil,
			`"@b.example" is neither a domain nor an address`},
		{"trusted sealer", `arc_trusted_sealers = ["a@b.example"]`, nil, `"a@b.example" is no domain`},
		{"trusted sealer without checks", "arc_trusted_sealers = [\"a.example\"]\ncheck_authentication = false", nil,
			"no seal is looked at"},
		{"feedback without signatures", "feedback_providers = [\"a.example\"]\ncheck_authentication = false", nil,
			"needs check_authentication"},
		{"unknown key", "colour = 1", nil, "colour (postrider.toml:1): there is no such setting; docs/configuration.md lists all"},
		{"unknown key near a setting", "\nrate_limt = 1", nil, "rate_limt (postrider.toml:2): there is no such setting; " +
			"did you mean rate_limit?"},
		{"no TOML", "rate_limit = 1\na = = b", nil, "postrider.toml:2: the file is not TOML: "},
		{"second line", "# no\n\nsmtp_port = 0", nil, "smtp_port (postrider.toml:3): is 0, must be"},
		{"list for a text", `hostname = ["a"]`, nil, "hostname (postrider.toml:1): must be a single value"},
		{"table for a number", "[rate_limit]", nil, "rate_limit (postrider.toml:1): must be a single value"},
		{"date", "hostname = 2026-01-01", nil, "must be a single value"},
		{"whole number", "rate_limit = 1.5", nil, `rate_limit (postrider.toml:1): "1.5" is not a whole number`},
		{"number", "", []string{"--lane-rate=x"}, `lane_rate (--lane-rate): "x" is not a number`},
		{"low rate", "", []string{"--lane-rate=1e-9"}, "lane_rate (--lane-rate): is 1e-09, must be between 0.0001"},
		{"not a number", "", []string{"--lane-rate=NaN"}, "lane_rate (--lane-rate): is NaN, must be between"},
		{"bool", "sandbox_send = 7", nil, "neither true nor false"},
		{"duration without unit", "shutdown_grace = 30", nil, `"30" is not a duration: write it as 30s`},
		{"duration", "", []string{"--shutdown-grace=-1s"}, "shutdown_grace (--shutdown-grace): is -1s, must be"},
		{"size", "", []string{"--attachment-max=40XB"}, "write it as 40MB"},
		{"small size", "", []string{"--attachment-max=1"}, "must be between 1KB and 1GB"},
		{"log level", `log_level = "loud"`, nil, `log_level (postrider.toml:1): "loud" is not known; use one of debug, info`},
		{"network", "", []string{"--http-proxy-from=10.0.0.1"}, `"10.0.0.1" is no network; write it as 10.0.0.0/8`},
		{"sender", "", []string{"--notice-from=notices"}, "notice_from (--notice-from): \"notices\" is no sender; write"},
		{"sender without a bracket", "", []string{"--notice-from=P <a@b.example"}, "is no sender; write notices@example.com"},
		{"sender of no domain", "", []string{"--notice-from=P <a@b_>"}, "is no sender; write notices@example.com"},
		{"operator", "", []string{"--operator-team=Acme"}, "is no id of a team; `postrider teams list` shows"},
		{"milter", "", []string{"--milter=127.0.0.1:8890"}, "is no address of a content filter; write unix:/path or"},
		{"milter's port", "", []string{"--milter=inet:127.0.0.1"}, "is no address of a content filter; write unix:/path or"},
		{"blob URL with one slash", "", []string{"--blob-url=s3:/x"}, `"s3:/x" is neither a folder nor a URL; write s3://BUCKET`},
		{"no bucket", "", []string{"--blob-url=s3://?region=eu"}, "names no bucket; write s3://BUCKET?region=REGION"},
		{"no absolute folder", "", []string{"--blob-url=file://blobs"}, "has no absolute folder; write file:///folder"},
		{"log format", "", []string{"--log-format=xml"}, `"xml" is not known; use one of text, json`},
		{"transport", "", []string{"--transport=pigeon"}, "use one of direct, relay, capture"},
		{"relay without address", "", []string{"--transport=relay"}, "relay_addr: is empty; transport relay needs"},
		{"relay address", "", []string{"--relay-addr=smtp.test"}, "is not host:port"},
		{"half a login", "", []string{"--relay-addr=smtp.test:25", "--relay-username=a"}, "belong together"},
		{"password in clear", "", []string{"--relay-addr=smtp.test:25", "--relay-username=a", "--relay-password=b",
			"--relay-tls=none"}, "password in clear to smtp.test"},
		{"relay tls", "", []string{"--relay-tls=maybe"}, "use one of opportunistic"},
		{"listen", "", []string{"--http-listen=8080"}, "write :8080"},
		{"listen port", "", []string{"--http-listen=:99999"}, "write :8080"},
		{"database", "", []string{"--database-url=mysql://x"}, "must begin with postgres://"},
		{"direct", "", []string{"--database-url=postgres://x", "--database-direct-url=x"}, "must begin with postgres://"},
		{"direct alone", "", []string{"--database-direct-url=postgres://x"}, "needs database_url"},
		{"blob", "", []string{"--blob-url=gs://x"}, `scheme "gs" is not known`},
		{"secret", "", []string{"--secret-key=abc"}, "64 hexadecimal digits"},
		{"public url", "", []string{"--public-url=mail.example.com"}, "must be a URL such as"},
		{"public url query", "", []string{"--public-url=https://x.test/?a=b"}, "must be a URL such as"},
		{"https", "", []string{"--https-listen=443", "--acme"}, `https_listen (--https-listen): "443" is no address`},
		{"https without a certificate", "", []string{"--https-listen=:443"}, "needs a certificate: set acme = true"},
		{"https at the port of http", "", []string{"--http-listen=:8080", "--https-listen=:8080", "--acme"}, "is the same as http_listen"},
		{"https without a name", "", []string{"--https-listen=:443", "--acme", "--hostname=vm"},
			`no authority issues a certificate for the host of "https://vm"`},
		{"https and http", "", []string{"--https-listen=:443", "--acme", "--public-url=http://mail.example.com"},
			"must begin with https://"},
		{"half a certificate", "", []string{"--tls-cert-file=a"}, "belong together; set both or neither"},
		{"acme directory", "", []string{"--acme-directory=http://a.test/"}, "acme_directory (--acme-directory)"},
		{"acme email", "", []string{"--acme-email=a"}, "is no address; write admin@example.com"},
		{"acme challenge", "", []string{"--acme-challenges=dns-01"}, "use one of http-01, tls-alpn-01"},
		{"acme challenge twice", "", []string{"--acme-challenges=http-01,http-01"}, "named twice"},
		{"no acme challenge", "acme_challenges = []", nil, "name at least one of http-01, tls-alpn-01"},
		{"half of a binding", "", []string{"--acme-eab-key-id=x"}, "acme_eab_key_id (--acme-eab-key-id): and acme_eab_key"},
		{"binding", "", []string{"--acme-eab-key-id=x", "--acme-eab-key=!"}, "acme_eab_key (--acme-eab-key): is not base64url"},
		{"tls-alpn without https", "", []string{"--acme", "--acme-challenges=tls-alpn-01"}, "needs https_listen; add"},
		{"acme dns", "", []string{"--acme-dns-server=dns.test"}, "is not address:port"},
		{"acme dns zone", "", []string{"--acme-dns-server=9.9.9.9"}, `acme_dns_zone: "" is not a domain name`},
		{"acme dns key", "", []string{"--acme-dns-server=9.9.9.9", "--acme-dns-key-secret=-"},
			"acme_dns_key_secret (--acme-dns-key-secret): is not base64"},
		{"acme dns algorithm", "", []string{"--acme-dns-key-algorithm=md5"}, "use one of hmac-sha1"},
		{"acme dns twice", "", []string{"--acme-dns-server=9.9.9.9", "--acme-dns-hook=/bin/true"}, "exclude each other"},
		{"contact of zones", "", []string{"--dns-contact=\"a b\"@c.example"}, "dns_contact (--dns-contact): "},
		{"contact without a host", "", []string{"--dns-contact=a@b"}, "is not an email address such as"},
		{"hostname", "", []string{"--hostname=a b"}, `hostname (--hostname): "a b" is not a domain name`},
		{"host", "", []string{"--bounce-host=-a.test"}, "not a domain name"},
		{"sandbox", "", []string{"--sandbox-domain=a.test,b_"}, `sandbox_domain (--sandbox-domain): "b_"`},
		{"selector", "", []string{"--dkim-selector=A"}, "not a selector"},
		{"one selector", "", []string{"--dkim-selector=a", "--dkim-selector-ed25519=a"}, "each key needs its own"},
		{"dns", "", []string{"--dns-servers=dns.test"}, "is no address; write 9.9.9.9"},
		{"dnssec", "", []string{"--dnssec-resolvers=dns.test"}, "is no address; write 127.0.0.1"},
		{"port of policies", "\nmta_sts_port = 99999", nil, "mta_sts_port (postrider.toml:2): is 99999, must be between 1 and"},
		{"no port of policies", "mta_sts_port = 0", nil, "mta_sts_port (postrider.toml:1): is 0, must be between 1 and 65535"},
		{"template's owner", `domain_connect_provider = "x y"`, nil,
			`domain_connect_provider (postrider.toml:1): "x y" is not a domain; write one such as example.com`},
		{"template's owner without a valid label", `domain_connect_provider = "a..example.com"`, nil, "is not a domain; write"},
		{"template", "domain_connect_provider = \"example.com\"\ndomain_connect_service = \"a b\"", nil,
			`domain_connect_service (postrider.toml:2): "a b" must have letters, digits, hyphens and dots only`},
		{"template without a name", `domain_connect_service = ""`, nil, `"" must have letters`},
		{"key of the template", `domain_connect_key_domain = "x_y.example"`, nil,
			`domain_connect_key_domain (postrider.toml:1): "x_y.example" is not a domain`},
		{"validating resolver", `dnssec_resolvers = ["resolver.example"]`, nil,
			`"resolver.example" is no address; write 127.0.0.1 or [::1]:53, the address of a resolver on this machine`},
		{"port", "", []string{"--smtp-port=0"}, "smtp_port (--smtp-port): is 0, must be between 1 and 65535"},
		{"lanes", "", []string{"--lane-concurrency=0"}, "lane_concurrency"},
		{"connections", "", []string{"--connections-max=-1"}, "connections_max"},
		{"no retries", "retry_schedule = []", nil, "has 0 waits"},
		{"many retries", "", []string{"--retry-schedule=" + strings.Join(long, ",")}, "has 101 waits"},
		{"short retry", "", []string{"--retry-schedule=1ms"}, "a wait of 1ms"},
		{"no roles", "roles = []", nil, "roles (postrider.toml:1): is empty"},
		{"role", "", []string{"--roles=api,cook"}, `"cook" is not known`},
		{"role twice", "", []string{"--roles=api,api"}, "api is named twice"},
		{"data folder", `data_dir = ""`, nil, "data_dir (postrider.toml:1): is empty"},
		{"metrics", "", []string{"--metrics-listen=9464"}, `"9464" is no address; write 127.0.0.1:9464`},
		{"alarm to nobody", "", []string{"--alert-to=operator"}, `"operator" is neither an address nor a URL`},
		{"alarm without a sender", "", []string{"--alert-to=a@b.example"}, "which needs notice_from"},
		{"alarm in clear", "", []string{"--alert-to=http://chat.example/x"}, "has a URL that cannot be used; write https"},
		{"one wrong alarm", "", []string{"--alert-to=https://a.example/x,ftp://b.example"}, "has a URL that cannot be used"},
		{"alarm at once", "", []string{"--alert-queue-age=1s"}, "alert_queue_age (--alert-queue-age): is 1s, must be at"},
		{"alarm before", "", []string{"--alert-backup-age=-1h"}, "alert_backup_age (--alert-backup-age): is -1h0m0s"},
		{"traces", "", []string{"--otlp-endpoint=collector:4318"}, `must be a URL such as http://127.0.0.1:4318`},
		{"traces' query", "", []string{"--otlp-endpoint=https://collector.example?a=b"}, "must be a URL such as"},
		{"traces' header", "", []string{"--otlp-headers=token"}, "has a field that is not name=value"},
		{"traces' header name", "", []string{"--otlp-headers=a b=c"}, "has a field that is not name=value"},
		{"part of the traces", "", []string{"--otlp-sample=1.5"}, "otlp_sample (--otlp-sample): is 1.5, must be between"},
		{"doctor's domain", "", []string{"--doctor-mail-domains=a b"}, `"a b" is not a domain name`},
		{"doctor's lists", "", []string{"--doctor-address-lists=" + strings.Repeat("a.example,", 20) + "b.example"},
			"has 21 names, must have at most 20"},
		{"doctor's name", "", []string{"--doctor-signed-name=-"}, `doctor_signed_name (--doctor-signed-name): "-" is not`},
		{"doctor's clock", "", []string{"--doctor-clock-url=time.test"}, "must be a URL such as https://www.example.com/"},
		{"flag", "", []string{"--colour=1"}, "--colour: there is no such flag"},
		{"regions", "regions = 1", nil, "regions (postrider.toml): must be tables such as [regions.us-east-1]"},
		{"region", "[regions]\neu = 1", nil, "regions.eu (postrider.toml): must be a table"},
		{"region key", "[regions.eu]\ncolour = 1", nil,
			"regions.eu.colour (postrider.toml:2): there is no such setting; use bounce_host"},
		{"region value", "[regions.eu]\nbounce_host = 1", nil, "regions.eu.bounce_host (postrider.toml:2): must be a text"},
		{"region host", "[regions.eu]\nbounce_host = \"a b\"", nil,
			`regions.eu.bounce_host (postrider.toml:2): "a b" is not a domain name`},
		{"region label", "[regions.\"E U\"]", nil, "regions.E U (postrider.toml): a label has"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(source(tt.file, nil, tt.args...))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Load: %v\nwant an error with %q", err, tt.want)
			}
		})
	}
}

// With https_listen and acme, http_listen is where the authority looks, unless it is set or not needed.
func TestPortOfChallenges(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		file, flag, want string
	}{
		{"", "--smtp-port=25", ":80"}, {"", "--http-listen=:8081", ":8081"}, {`http_listen = ":8080"`, "--smtp-port=25", ":8080"},
		{"", "--acme-challenges=tls-alpn-01", ":8080"}, {"", "--acme-dns-hook=/bin/true", ":8080"},
	} {
		got := load(t, source(x.file, nil, "--acme", "--hostname=mail.example.com", "--https-listen=:443", x.flag))
		if got.HTTPListen != x.want || got.PublicURL != "https://mail.example.com" {
			t.Errorf("%s %s: http_listen %s, public_url %s", x.file, x.flag, got.HTTPListen, got.PublicURL)
		}
	}
}

// With https_listen, public_url leads to the HTTPS listener unless it is set.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ listen, want string }{{":443", "https://mail.example.com"},
		{"127.0.0.1:8443", "https://mail.example.com:8443"}} {
		got := load(t, source("", nil, "--acme", "--hostname=mail.example.com", "--https-listen="+c.listen,
			"--acme-dns-server=192.0.2.1", "--acme-dns-zone=Example.com.", "--acme-dns-key-name=k",
			"--acme-dns-key-secret=YQ=="))
		if got.PublicURL != c.want || got.TrackingHost != "mail.example.com" || got.ACMEDNSServer != "192.0.2.1:53" ||
			got.ACMEDNSZone != "example.com" {
			t.Errorf("%s: %+v", c.listen, got)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	env := map[string]string{"POSTRIDER_SMTP_PORT": "x", "POSTRIDER_SECRET_KEY": "hunter2",
		"POSTRIDER_DATABASE_URL": "mysql://u:hunter2@h/d"}
	src := source("colour = 1\nrate_limit = -1", env, "--transport=pigeon")
	src.Hostname = func() (string, error) { return "", errors.New("nameless") }
	_, err := Load(src)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"colour", "rate_limit (postrider.toml:2)", "smtp_port (POSTRIDER_SMTP_PORT)",
		"transport (--transport)",
		"secret_key (POSTRIDER_SECRET_KEY)", "database_url (POSTRIDER_DATABASE_URL)"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not among the problems:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret shows:\n%v", err)
	}
	src = source("", nil)
	src.Hostname = func() (string, error) { return "", errors.New("nameless") }
	if _, err := Load(src); err == nil || !strings.Contains(err.Error(), "set hostname") {
		t.Errorf("a machine without a name: %v", err)
	}
	src.Defaults = map[string]string{"colour": "red"}
	if _, err := Load(src); err == nil || !strings.Contains(err.Error(), "default of colour") {
		t.Errorf("a default of nothing: %v", err)
	}
}

// Each setting but the regions has a flag. The flags show the defaults of the command.
func TestFlags(t *testing.T) {
	t.Parallel()
	all := Source{Defaults: map[string]string{"rate_limit": "1000", "http_listen": ""},
		Derived: map[string]string{"tracking_url": "public_url"}, SystemFile: "/x.toml"}.Flags()
	if len(all) != len(settings(&Config{}))-1 { // --config instead of the regions and the relays
		t.Errorf("%d flags", len(all))
	}
	shown := map[string]Flag{}
	for _, f := range all {
		shown[f.Name] = f
	}
	for name, want := range map[string]string{"config": "postrider.toml, or else /x.toml, if it exists", "rate-limit": "1000",
		"http-listen": "empty", "tracking-url": "public_url", "hostname": "", "smtp-port": "25"} {
		if got, ok := shown[name]; !ok || got.Default != want || got.Doc == "" {
			t.Errorf("--%s: %+v, want the default %q", name, got, want)
		}
	}
	if !shown["acme"].IsBool || shown["roles"].Kind != "list" || shown["roles"].IsBool {
		t.Errorf("acme %+v, roles %+v", shown["acme"], shown["roles"])
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("ab", 32)
	c := load(t, source("", nil, "--secret-key="+key, "--database-url=postgres://u:hunter2@h/d",
		"--alert-to=https://chat.example/hunter2", "--otlp-headers=authorization=hunter2, x-team = a=b"))
	if h, err := c.OTLPHeader(); err != nil || h["authorization"] != "hunter2" || h["x-team"] != "a=b" || len(h) != 2 {
		t.Errorf("otlp_headers: %v, %v", h, err)
	}
	if string(c.SecretKey) != key {
		t.Errorf("secret_key = %q", string(c.SecretKey))
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("start", "config", c, "key", c.SecretKey)
	slog.New(slog.NewTextHandler(&log, nil)).Info("start", "config", c, "key", c.SecretKey)
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), log.String()} {
		if strings.Contains(text, key) || strings.Contains(text, "hunter2") {
			t.Errorf("a secret shows in %s", text)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{"0": 0, "1000": 1000, "40MB": 40 << 20, "40 mb": 40 << 20, "1GiB": 1 << 30,
		"512K": 512 << 10, "7b": 7, " 3G ": 3 << 30} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%q = %d, %v; want %d", text, s, err, want)
		}
		var again Size
		if err := again.UnmarshalText([]byte(s.String())); err != nil || again != want {
			t.Errorf("%q came back from %s as %d, %v", text, s, again, err)
		}
	}
	for _, text := range []string{"", "MB", "-1", "1.5MB", "1TB", "1MBM", "9999999999GB", "99999999999999999999", "1 2"} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was taken as %d", text, s)
		}
	}
}

func FuzzSize(f *testing.F) {
	for _, text := range []string{"40MB", "1", "", "9223372036854775807", "8GB"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s, again Size
		if s.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(s.String())); err != nil || again != s || s < 0 {
			t.Errorf("%q = %d, and %s = %d, %v", text, int64(s), s, int64(again), err)
		}
	})
}

// A wrong setting adds no problems of settings that are derived only from valid ones.
func TestOneProblem(t *testing.T) {
	t.Parallel()
	_, err := Load(source("https_listen = \":443\"\nacme = true\nhostname = \"mail.example.com\"\nlog_levl = \"info\"", nil))
	if all := Problems(err); len(all) != 1 || all[0].Setting != "log_levl" {
		t.Errorf("%v, want only the problem of log_levl", err)
	}
}

// All wrong items of a list are reported together.
func TestProblemsOfOneList(t *testing.T) {
	t.Parallel()
	_, err := Load(source(`allow_networks = ["x", "10.8.0.0/16", "y", "127.0.0.0/8"]`, nil))
	for _, want := range []string{`"x" is no network`, `"y" is no network`, "127.0.0.0/8 contains addresses"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestManual checks that docs/configuration.md matches the settings.
func TestManual(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "..", "docs", "configuration.md")
	want := Markdown()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/configuration.md is not up to date; run `go test ./internal/lib/config -update` (-want +got):\n%s",
			diff)
	}
	for _, s := range settings(&Config{}) {
		if s.key == "" || s.doc == "" || !strings.HasSuffix(s.doc, ".") {
			t.Errorf("setting %q has no key or no sentence of its own: %q", s.key, s.doc)
		}
	}
}
