package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

// source returns a Source with one configuration file and the given variables and flags.
func source(file string, env map[string]string, args ...string) Source {
	return Source{
		Args:   args,
		Getenv: func(name string) string { return env[name] },
		ReadFile: func(name string) ([]byte, error) {
			if name != DefaultFile || file == "" {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return []byte(file), nil
		},
		Hostname: func() (string, error) { return "Node1.Example.COM.", nil },
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
		Transport:               "direct", RelayTLS: "opportunistic", SMTPPort: 25,
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
		DKIMSelector: "postrider", DKIMSelectorEd25519: "postrider-ed", CAAIssuer: "letsencrypt.org",
		SMTPSubmitListen: ":587", SMTPSubmitsListen: ":465", SMTPSubmitConnections: 500, SMTPSubmitPerAddress: 50,
		SMTPInListen: ":25", SMTPInMaxSize: 40 << 20, SMTPInConnections: 1000, SMTPInPerAddress: 50,
		CheckAuthentication: true,
		SandboxDomains:      []string{"resend.dev"},
		Roles:               []string{"api", "delivery", "jobs"}, MigrateOnStart: true, PartitionBy: "month",
		LogRetention: 720 * time.Hour, AuditRetention: 8760 * time.Hour, ImportRetention: 720 * time.Hour,
		ShutdownGrace: 30 * time.Second,
		LogLevel:      slog.LevelInfo, LogFormat: "text",
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
	src := source(file, env, "--http-listen=127.0.0.1:3", "-sandbox-send", "--legacy-aliases=false", "--log-level", "WARN")
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
	src.Args = []string{"--config", filepath.Join(dir, "b.toml")}
	if c := load(t, src); c.RateLimit != 2 {
		t.Errorf("rate_limit = %d, want that of the file in --config", c.RateLimit)
	}
	src.Args = []string{"--config", filepath.Join(dir, "c.toml")}
	if _, err := Load(src); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a named file that is not there: %v", err)
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
		if c := load(t, source("", nil, "--http-listen", listen, "--tracking-host", "t.test")); c.PublicURL != want {
			t.Errorf("public_url at %s = %s, want %s", listen, c.PublicURL, want)
		}
	}
	c := load(t, source("", nil, "--dns-servers", "9.9.9.9, 1.1.1.1:5353,2620:fe::fe,[::1]:53", "--delivery-workers=3",
		"--signers=7"))
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
		{"feedback provider", `feedback_providers = ["not a domain"]`, nil,
			`"not a domain" is neither a domain nor an address`},
		{"feedback provider's address", `feedback_providers = ["@b.example"]`, nil,
			`"@b.example" is neither a domain nor an address`},
		{"feedback without signatures", "feedback_providers = [\"a.example\"]\ncheck_authentication = false", nil,
			"needs check_authentication"},
		{"unknown key", "colour = 1", nil, "postrider.toml: unknown setting colour"},
		{"no TOML", "a = = b", nil, "postrider.toml: "},
		{"list for a text", `hostname = ["a"]`, nil, "hostname (postrider.toml): must be a single value"},
		{"table for a number", "[rate_limit]", nil, "rate_limit (postrider.toml): must be a single value"},
		{"date", "hostname = 2026-01-01", nil, "must be a single value"},
		{"whole number", "rate_limit = 1.5", nil, `rate_limit (postrider.toml): "1.5" is not a whole number`},
		{"number", "", []string{"--lane-rate=x"}, `lane_rate (--lane-rate): "x" is not a number`},
		{"not a number", "", []string{"--lane-rate=NaN"}, "lane_rate (--lane-rate): is NaN, must be between"},
		{"bool", "sandbox_send = 7", nil, "neither true nor false"},
		{"duration without unit", "shutdown_grace = 30", nil, `"30" is not a duration: write it as 30s`},
		{"duration", "", []string{"--shutdown-grace=-1s"}, "shutdown_grace (--shutdown-grace): is -1s, must be"},
		{"size", "", []string{"--attachment-max=40XB"}, "write it as 40MB"},
		{"small size", "", []string{"--attachment-max=1"}, "must be between 1KB and 1GB"},
		{"log level", `log_level = "loud"`, nil, "log_level (postrider.toml)"},
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
		{"hostname", "", []string{"--hostname=a b"}, `hostname (--hostname): "a b" is not a domain name`},
		{"host", "", []string{"--bounce-host=-a.test"}, "not a domain name"},
		{"sandbox", "", []string{"--sandbox-domain=a.test,b_"}, `sandbox_domain (--sandbox-domain): "b_"`},
		{"selector", "", []string{"--dkim-selector=A"}, "not a selector"},
		{"one selector", "", []string{"--dkim-selector=a", "--dkim-selector-ed25519=a"}, "each key needs its own"},
		{"dns", "", []string{"--dns-servers=dns.test"}, "is no address; write 9.9.9.9"},
		{"port", "", []string{"--smtp-port=0"}, "smtp_port (--smtp-port): is 0, must be between 1 and 65535"},
		{"lanes", "", []string{"--lane-concurrency=0"}, "lane_concurrency"},
		{"connections", "", []string{"--connections-max=-1"}, "connections_max"},
		{"no retries", "retry_schedule = []", nil, "has 0 waits"},
		{"many retries", "", []string{"--retry-schedule=" + strings.Join(long, ",")}, "has 101 waits"},
		{"short retry", "", []string{"--retry-schedule=1ms"}, "a wait of 1ms"},
		{"no roles", "roles = []", nil, "roles (postrider.toml): is empty"},
		{"role", "", []string{"--roles=api,cook"}, `"cook" is not known`},
		{"role twice", "", []string{"--roles=api,api"}, "api is named twice"},
		{"data folder", `data_dir = ""`, nil, "data_dir (postrider.toml): is empty"},
		{"argument", "", []string{"serve"}, `argument "serve" is not expected`},
		{"flag", "", []string{"--colour=1"}, "flag provided but not defined"},
		{"regions", "regions = 1", nil, "regions must be tables"},
		{"region", "[regions]\neu = 1", nil, "regions.eu must be a table"},
		{"region key", "[regions.eu]\ncolour = 1", nil, "unknown setting regions.eu.colour"},
		{"region value", "[regions.eu]\nbounce_host = 1", nil, "regions.eu.bounce_host must be a text"},
		{"region host", "[regions.eu]\nbounce_host = \"a b\"", nil, `regions.eu.bounce_host: "a b" is not a domain name`},
		{"region label", "[regions.\"E U\"]", nil, "regions.E U: a label has"},
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
	for _, want := range []string{"colour", "rate_limit (postrider.toml)", "smtp_port (POSTRIDER_SMTP_PORT)",
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

func TestFlagsOfTheCaller(t *testing.T) {
	t.Parallel()
	set := flag.NewFlagSet("keys", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	team := set.String("team", "", "")
	src := source("", nil, "--team=a", "--rate-limit=3", "create", "x")
	src.Flags = set
	c := load(t, src)
	if *team != "a" || c.RateLimit != 3 || !slices.Equal(set.Args(), []string{"create", "x"}) {
		t.Errorf("team %q, rate_limit %d, arguments %q", *team, c.RateLimit, set.Args())
	}
	if _, err := Load(source("", nil, "--help")); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help: %v, want flag.ErrHelp", err)
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("ab", 32)
	c := load(t, source("", nil, "--secret-key="+key, "--database-url=postgres://u:hunter2@h/d"))
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
