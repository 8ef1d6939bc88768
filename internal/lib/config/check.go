package config

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// complete sets default values that depend on other settings or on the machine.
func (l *loader) complete(src Source) {
	c := &l.config
	if c.Hostname == "" {
		name, err := src.Hostname()
		if err != nil || name == "" {
			l.problem("hostname: the machine does not tell its name (%v); set hostname", err)
		}
		c.Hostname = name
	}
	c.Hostname = hostName(c.Hostname)
	if c.PublicURL == "" {
		c.PublicURL = LocalURL(c.HTTPListen)
	}
	c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	c.TrackingURL = strings.TrimRight(c.TrackingURL, "/")
	c.BlobURL = cmp.Or(c.BlobURL, filepath.Join(c.DataDir, "blobs"))
	if c.DeliveryWorkers == 0 {
		c.DeliveryWorkers = max(16, 4*runtime.NumCPU())
	}
	if c.Signers == 0 {
		c.Signers = runtime.NumCPU()
	}
	for i, s := range c.DNSServers {
		if ip, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
			c.DNSServers[i] = netip.AddrPortFrom(ip, 53).String()
		}
	}
	c.BounceHost = cmp.Or(hostName(c.BounceHost), c.Hostname)
	c.InboundHost = cmp.Or(hostName(c.InboundHost), c.Hostname)
	c.SPFInclude = cmp.Or(hostName(c.SPFInclude), c.Hostname)
	if u, err := url.Parse(c.PublicURL); err == nil && c.TrackingHost == "" {
		c.TrackingHost = u.Hostname()
	}
	c.TrackingHost = hostName(c.TrackingHost)
	c.CAAIssuer = hostName(c.CAAIssuer)
	c.ManagedDomain = hostName(c.ManagedDomain)
	for i, d := range c.SandboxDomains {
		c.SandboxDomains[i] = hostName(d)
	}
	for label, r := range c.Regions {
		r.BounceHost = cmp.Or(hostName(r.BounceHost), c.BounceHost)
		r.InboundHost = cmp.Or(hostName(r.InboundHost), c.InboundHost)
		r.SPFInclude = cmp.Or(hostName(r.SPFInclude), c.SPFInclude)
		r.TrackingHost = cmp.Or(hostName(r.TrackingHost), c.TrackingHost)
		c.Regions[label] = r
	}
}

// hostName normalizes a host name for comparisons: lower case, without the final dot.
func hostName(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

// LocalURL returns the URL of a listener for clients on the same machine. If the listener accepts connections to
// localhost, the URL contains localhost instead of an IP address. Passkeys are bound to names (Web Authentication Level
// 3, section 5.1.2).
func LocalURL(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "" // reported by checkAddresses
	}
	if ip, err := netip.ParseAddr(host); host == "" || host == "127.0.0.1" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	if port == "80" {
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		return "http://" + host
	}
	return "http://" + net.JoinHostPort(host, port)
}

// wrong adds a problem that names an invalid value and its source.
func (l *loader) wrong(key, format string, args ...any) {
	origin := ""
	if s := l.find(key); s != nil && s.origin != "" && s.origin != "default" {
		origin = " (" + s.origin + ")"
	}
	l.problem("%s%s: %s", key, origin, fmt.Sprintf(format, args...))
}

// check adds a problem for every invalid value.
func (l *loader) check() {
	c := &l.config
	if c.DataDir == "" {
		l.wrong("data_dir", "is empty; name a folder")
	}
	l.checkAddresses()
	l.checkRelay()
	l.checkNumbers()
	l.checkNames()
	l.oneOf("partition_by", c.PartitionBy, "day", "week", "month")
	l.oneOf("transport", c.Transport, "direct", "relay", "capture")
	l.oneOf("relay_tls", c.RelayTLS, "opportunistic", "required", "implicit", "none")
	l.oneOf("log_format", c.LogFormat, "text", "json")
	if len(c.Roles) == 0 {
		l.wrong("roles", "is empty; name at least one of api, delivery, jobs, submission, receiving")
	}
	for i, r := range c.Roles {
		l.oneOf("roles", r, "api", "delivery", "jobs", "submission", "receiving")
		if slices.Contains(c.Roles[:i], r) {
			l.wrong("roles", "%s is named twice", r)
		}
	}
}

func (l *loader) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		l.wrong(key, "%q is not known; use one of %s", value, strings.Join(allowed, ", "))
	}
}

func isPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

func (l *loader) checkAddresses() {
	c := &l.config
	// The URLs may contain a password, so the error messages do not include them.
	if s := string(c.DatabaseURL); s != "" && !isPostgres(s) {
		l.wrong("database_url", "must begin with postgres://; leave it empty for SQLite in data_dir")
	}
	switch s := string(c.DatabaseDirectURL); {
	case s != "" && !isPostgres(s):
		l.wrong("database_direct_url", "must begin with postgres://; leave it empty if database_url leads to no pooler")
	case s != "" && c.DatabaseURL == "":
		l.wrong("database_direct_url", "needs database_url, which leads to the pooler")
	}
	if scheme, _, ok := strings.Cut(c.BlobURL, "://"); ok && !slices.Contains([]string{"file", "s3", "mem"}, scheme) {
		l.wrong("blob_url", "scheme %q is not known; use a folder, file://, s3:// or mem://", scheme)
	}
	if b, err := hex.DecodeString(string(c.SecretKey)); c.SecretKey != "" && (err != nil || len(b) != 32) {
		l.wrong("secret_key", "must be 64 hexadecimal digits; make one with `openssl rand -hex 32`, or leave it empty")
	}
	if !hostPort(c.HTTPListen, true) {
		l.wrong("http_listen", "%q is no address; write :8080 or 127.0.0.1:8080", c.HTTPListen)
	}
	for _, s := range [][2]string{{"smtp_submit_listen", c.SMTPSubmitListen},
		{"smtp_submits_listen", c.SMTPSubmitsListen}} {
		if s[1] != "" && !hostPort(s[1], true) {
			l.wrong(s[0], "%q is no address; write :587 or 127.0.0.1:1587", s[1])
		}
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		l.wrong("tls_cert_file", "and tls_key_file belong together; set both or neither")
	}
	for _, s := range [][2]string{{"public_url", c.PublicURL}, {"tracking_url", c.TrackingURL}} {
		u, err := url.Parse(s[1])
		if s[1] != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
			u.RawQuery != "" || u.Fragment != "") {
			l.wrong(s[0], "%q must be a URL such as https://mail.example.com, without a query", s[1])
		}
	}
	if !hostPort(c.SMTPInListen, true) {
		l.wrong("smtp_in_listen", "%q is no address; write :25 or 127.0.0.1:1025", c.SMTPInListen)
	}
	l.checkOIDC()
	for i, s := range c.FeedbackAddresses {
		if local, host, ok := strings.Cut(s, "@"); !ok || local == "" || !domain.MatchString(hostName(host)) {
			l.wrong("feedback_address", "%q is no address; write fbl@mx.example.com", s)
		}
		c.FeedbackAddresses[i] = hostName(s)
	}
	if len(c.FeedbackProviders) > 0 && !c.CheckAuthentication {
		l.wrong("feedback_providers", "needs check_authentication: without it no signature is looked at")
	}
	for i, s := range c.FeedbackProviders {
		c.FeedbackProviders[i] = hostName(s)
		if local, host, ok := strings.Cut(hostName(s), "@"); ok && (local == "" || !domain.MatchString(host)) || !ok &&
			!domain.MatchString(local) {
			l.wrong("feedback_providers", "%q is neither a domain nor an address; write arf.mail.example.com or "+
				"staff@example.com", s)
		}
	}
	for _, s := range c.DNSServers {
		_, errPort := netip.ParseAddrPort(s)
		_, errAddr := netip.ParseAddr(strings.Trim(s, "[]"))
		if errPort != nil && errAddr != nil {
			l.wrong("dns_servers", "%q is no address; write 9.9.9.9 or [2620:fe::fe]:53", s)
		}
	}
}

// checkOIDC rejects an OpenID Connect provider with an unencrypted URL, because the provider's responses identify
// users. An unencrypted URL is allowed only if the provider is on this machine.
func (l *loader) checkOIDC() {
	c := &l.config
	for i, d := range c.OIDCDomains {
		if c.OIDCDomains[i] = hostName(d); !domain.MatchString(c.OIDCDomains[i]) {
			l.wrong("oidc_domain", "%q is not a domain name", d)
		}
	}
	if c.OIDCIssuer == "" {
		return
	}
	u, err := url.Parse(c.OIDCIssuer)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "https" && !(u.Scheme == "http" && onThisMachine(u.Hostname())) {
		l.wrong("oidc_issuer", "%q must be a URL such as https://id.example.com; http is for this machine alone",
			c.OIDCIssuer)
	}
	if c.OIDCClientID == "" {
		l.wrong("oidc_client_id", "is empty; the provider gives it when this installation is registered there")
	}
}

func onThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// hostPort reports whether s has the form host:port. The host of a listener's address may be empty, and its port may be
// 0.
func hostPort(s string, listen bool) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && (listen || host != "" && n > 0)
}

func (l *loader) checkRelay() {
	c := &l.config
	if c.RelayAddr == "" {
		if c.Transport == "relay" {
			l.wrong("relay_addr", "is empty; transport relay needs the relay's host:port")
		}
		return
	}
	if !hostPort(c.RelayAddr, false) {
		l.wrong("relay_addr", "%q is not host:port; write smtp.example.com:587", c.RelayAddr)
		return
	}
	if (c.RelayUsername == "") != (c.RelayPassword == "") {
		l.wrong("relay_username", "and relay_password belong together; set both or neither")
	}
	host, _, _ := net.SplitHostPort(c.RelayAddr)
	if c.RelayPassword != "" && c.RelayTLS == "none" && !onThisMachine(host) {
		l.wrong("relay_tls", "none would send the password in clear to %s; use required or implicit", host)
	}
}

func (l *loader) checkNumbers() {
	c := &l.config
	between := func(key string, n, low, high int) {
		if n < low || n > high {
			l.wrong(key, "is %d, must be between %d and %d", n, low, high)
		}
	}
	between("smtp_port", c.SMTPPort, 1, math.MaxUint16)
	between("delivery_workers", c.DeliveryWorkers, 0, 100_000)
	between("signers", c.Signers, 0, 10_000)
	between("lane_concurrency", c.LaneConcurrency, 1, 10_000)
	between("connections_max", c.ConnectionsMax, 1, 100_000)
	between("smtp_in_connections", c.SMTPInConnections, 1, 100_000)
	between("smtp_in_per_address", c.SMTPInPerAddress, 0, 100_000)
	between("smtp_submit_connections", c.SMTPSubmitConnections, 1, 100_000)
	between("smtp_submit_per_address", c.SMTPSubmitPerAddress, 0, 100_000)
	between("rate_limit", c.RateLimit, 0, 1_000_000)
	between("trial_daily", c.TrialDaily, 0, 1_000_000_000)
	between("trial_monthly", c.TrialMonthly, 0, 1_000_000_000)
	if !(c.LaneRate >= 0 && c.LaneRate <= 1e6) { // the negated range check also rejects NaN
		l.wrong("lane_rate", "is %v, must be between 0 and 1000000", c.LaneRate)
	}
	if c.SMTPInMaxSize < 64<<10 || c.SMTPInMaxSize > 1<<30 {
		l.wrong("smtp_in_max_size", "is %v, must be between 64KB and 1GB", c.SMTPInMaxSize)
	}
	if c.ImportMaxSize < 1<<10 || c.ImportMaxSize > 100<<30 {
		l.wrong("import_max_size", "is %v, must be between 1KB and 100GB", c.ImportMaxSize)
	}
	if c.AttachmentMax < 1<<10 || c.AttachmentMax > 1<<30 {
		l.wrong("attachment_max", "is %v, must be between 1KB and 1GB", c.AttachmentMax)
	}
	if c.LogRetention < time.Hour {
		l.wrong("log_retention", "is %v, must be at least 1h", c.LogRetention)
	}
	if c.AuditRetention < 24*time.Hour {
		l.wrong("audit_retention", "is %v, must be at least 24h", c.AuditRetention)
	}
	if c.ImportRetention < time.Hour {
		l.wrong("import_retention", "is %v, must be at least 1h", c.ImportRetention)
	}
	for _, kept := range []struct {
		key string
		d   time.Duration
	}{
		{"email_retention", c.EmailRetention},
		{"body_retention", c.BodyRetention},
		{"received_retention", c.ReceivedRetention},
		{"event_retention", c.EventRetention},
	} {
		if kept.d != 0 && kept.d < 24*time.Hour {
			l.wrong(kept.key, "is %v, must be at least 24h, or 0s to keep without end", kept.d)
		}
	}
	if c.ShutdownGrace < 0 || c.ShutdownGrace > time.Hour {
		l.wrong("shutdown_grace", "is %v, must be between 0s and 1h", c.ShutdownGrace)
	}
	if n := len(c.RetrySchedule); n < 1 || n > 100 {
		l.wrong("retry_schedule", "has %d waits, must have 1 to 100", n)
	}
	for _, d := range c.RetrySchedule {
		if d < time.Second || d > 7*24*time.Hour {
			l.wrong("retry_schedule", "has a wait of %v; each must be between 1s and 168h", d)
		}
	}
	l.checkWebhooks()
}

func (l *loader) checkWebhooks() {
	c := &l.config
	if n := len(c.WebhookSchedule); n > 100 {
		l.wrong("webhook_schedule", "has %d waits, must have at most 100", n)
	}
	total := time.Duration(0)
	for _, d := range c.WebhookSchedule {
		total += min(max(d, 0), 7*24*time.Hour)
		if d < time.Second || d > 7*24*time.Hour {
			l.wrong("webhook_schedule", "has a wait of %v; each must be between 1s and 168h", d)
		}
	}
	if c.WebhookDisableAfter < time.Hour {
		l.wrong("webhook_disable_after", "is %v, must be at least 1h", c.WebhookDisableAfter)
	}
	if least := max(24*time.Hour, 2*total); c.WebhookRetention < least {
		l.wrong("webhook_retention", "is %v, must be at least %v, twice the time that webhook_schedule takes",
			c.WebhookRetention, least)
	}
}

// domain matches a domain name. The underscore allows names such as _spf.example.com.
var domain = regexp.MustCompile(`^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (l *loader) checkNames() {
	c := &l.config
	name := func(key, value string) {
		if value != "" && (len(value) > 253 || !domain.MatchString(hostName(value))) {
			l.wrong(key, "%q is not a domain name", value)
		}
	}
	hosts := func(prefix string, r Region) {
		name(prefix+"bounce_host", r.BounceHost)
		name(prefix+"inbound_host", r.InboundHost)
		name(prefix+"spf_include", r.SPFInclude)
		name(prefix+"tracking_host", r.TrackingHost)
	}
	name("hostname", c.Hostname)
	name("caa_issuer", c.CAAIssuer)
	name("managed_domain", c.ManagedDomain)
	for _, d := range c.SandboxDomains {
		name("sandbox_domain", d)
	}
	hosts("", Region{c.BounceHost, c.InboundHost, c.SPFInclude, c.TrackingHost})
	for _, label := range slices.Sorted(maps.Keys(c.Regions)) {
		if strings.Contains(label, ".") || !domain.MatchString(label) {
			l.wrong("regions."+label, "a label has lower-case letters, digits and hyphens only")
		}
		hosts("regions."+label+".", c.Regions[label])
	}
	for _, s := range [][2]string{{"dkim_selector", c.DKIMSelector}, {"dkim_selector_ed25519", c.DKIMSelectorEd25519}} {
		if !domain.MatchString(s[1]) {
			l.wrong(s[0], "%q is not a selector: lower-case letters, digits, hyphens", s[1])
		}
	}
	if c.DKIMSelector == c.DKIMSelectorEd25519 {
		l.wrong("dkim_selector_ed25519", "is the same as dkim_selector; each key needs its own")
	}
}
