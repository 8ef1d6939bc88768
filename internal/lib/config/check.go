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
	"unicode"
)

// complete sets default values that depend on other settings or on the machine.
func (l *loader) complete(src Source) {
	c := &l.config
	if c.Hostname == "" {
		name, err := src.Hostname()
		if err != nil || name == "" {
			l.wrong("hostname", "the machine does not tell its name (%v); set hostname", err)
		}
		c.Hostname = name
	}
	c.Hostname = hostName(c.Hostname)
	if s := l.find("http_listen"); s.origin == "default" && c.HTTPListen == s.def && c.checkedByHTTP() {
		c.HTTPListen = ":80"
	}
	c.ACMEEABKey = Secret(strings.TrimRight(string(c.ACMEEABKey), "="))
	if c.PublicURL == "" && c.HTTPSListen != "" {
		c.PublicURL = httpsURL(c.Hostname, c.HTTPSListen)
	}
	c.PublicURL = cmp.Or(c.PublicURL, LocalURL(c.HTTPListen))
	c.ACMEDNSServer = withPort(c.ACMEDNSServer, "53")
	c.ACMEDNSZone, c.ACMEDNSKeyName = hostName(c.ACMEDNSZone), hostName(c.ACMEDNSKeyName)
	c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	c.TrackingURL = strings.TrimRight(c.TrackingURL, "/")
	c.BlobURL = cmp.Or(c.BlobURL, filepath.Join(c.DataDir, "blobs"))
	if c.DeliveryWorkers == 0 {
		c.DeliveryWorkers = max(16, 4*runtime.NumCPU())
	}
	if c.Signers == 0 {
		c.Signers = runtime.NumCPU()
	}
	for _, servers := range [][]string{c.DNSServers, c.DNSSECResolvers} {
		for i, s := range servers {
			servers[i] = withPort(s, "53")
		}
	}
	c.FeedbackSenderID = cmp.Or(c.FeedbackSenderID, feedbackSenderID(c.Hostname))
	c.BounceHost = cmp.Or(hostName(c.BounceHost), c.Hostname)
	c.InboundHost = cmp.Or(hostName(c.InboundHost), c.Hostname)
	c.SPFInclude = cmp.Or(hostName(c.SPFInclude), c.Hostname)
	c.ReportHost = hostName(c.ReportHost)
	if u, err := url.Parse(c.PublicURL); err == nil && c.TrackingHost == "" {
		c.TrackingHost = u.Hostname()
	}
	c.TrackingHost = hostName(c.TrackingHost)
	c.DoctorClockURL = cmp.Or(c.DoctorClockURL, c.ACMEDirectory)
	for _, names := range [][]string{c.DoctorMailDomains, c.DoctorAddressLists, c.DoctorNameLists} {
		for i, name := range names {
			names[i] = hostName(name)
		}
	}
	c.completeNameServer()
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

// checkedByHTTP reports whether this node serves HTTPS with certificates of an authority that checks hosts at port 80.
func (c *Config) checkedByHTTP() bool {
	return c.HTTPSListen != "" && c.ACME && slices.Contains(c.ACMEChallenges, "http-01") && c.ACMEDNSServer == "" &&
		c.ACMEDNSHook == ""
}

// hostName normalizes a host name for comparisons: lower case, without the final dot.
func hostName(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

// withPort adds a port to an IP address that has none.
func withPort(s, port string) string {
	if ip, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return net.JoinHostPort(ip.String(), port)
	}
	return s
}

// httpsURL returns the URL of a host whose HTTPS listener has the given address.
func httpsURL(host, listen string) string {
	_, port, err := net.SplitHostPort(listen)
	if err != nil || port == "443" || port == "0" {
		return "https://" + host // checkHTTPS reports an invalid address
	}
	return "https://" + net.JoinHostPort(host, port)
}

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

// check adds a problem for every invalid value.
func (l *loader) check() {
	c := &l.config
	if c.DataDir == "" {
		l.wrong("data_dir", "is empty; name a folder")
	}
	l.checkAddresses()
	l.checkPeople()
	l.checkTelemetry()
	l.checkDoctor()
	l.checkHTTPS()
	l.checkACME()
	l.checkRelay()
	l.checkNetworks()
	l.checkNumbers()
	l.checkNames()
	l.checkDomainConnect()
	l.checkNameServer()
	l.oneOf("partition_by", c.PartitionBy, choices["partition_by"]...)
	l.oneOf("transport", c.Transport, choices["transport"]...)
	l.oneOf("relay_tls", c.RelayTLS, choices["relay_tls"]...)
	l.oneOf("log_format", c.LogFormat, choices["log_format"]...)
	if len(c.Roles) == 0 {
		l.wrong("roles", "is empty; name at least one of %s", strings.Join(choices["roles"], ", "))
	}
	for i, r := range c.Roles {
		l.oneOf("roles", r, choices["roles"]...)
		if slices.Contains(c.Roles[:i], r) {
			l.wrong("roles", "%s is named twice", r)
		}
	}
}

// checkTelemetry checks the settings for people and programs that watch the node.
func (l *loader) checkTelemetry() {
	c := &l.config
	if c.MetricsListen != "" && !hostPort(c.MetricsListen, true) {
		l.wrong("metrics_listen", "%q is no address; write 127.0.0.1:9464", c.MetricsListen)
	}
	for _, to := range c.AlertTo {
		local, host, isAddress := strings.Cut(string(to), "@")
		u, err := url.Parse(string(to))
		switch {
		case err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http" && onThisMachine(u.Hostname())):
		case strings.Contains(string(to), "://"): // the URL may contain a secret
			l.wrong("alert_to", "has a URL that cannot be used; write https://example.com/path; http is for this machine alone")
		case !isAddress || local == "" || !domain.MatchString(hostName(host)):
			l.wrong("alert_to", "%q is neither an address nor a URL; write operator@example.com or https://example.com/path",
				string(to))
		case c.NoticeFrom == "":
			l.wrong("alert_to", "has an address, which needs notice_from, the sender of the emails")
		}
	}
	if c.DMARCReports && (c.NoticeFrom == "" || !c.CheckAuthentication) {
		l.wrong("dmarc_reports", "needs notice_from, the sender of the reports, and check_authentication")
	}
	for _, age := range []struct {
		key string
		d   time.Duration
	}{{"alert_queue_age", c.AlertQueueAge}, {"alert_backup_age", c.AlertBackupAge}} {
		if age.d < 0 || age.d > 0 && age.d < time.Minute {
			l.wrong(age.key, "is %v, must be at least 1m, or 0s for no alarm", age.d)
		}
	}
	if c.OTLPEndpoint != "" {
		u, err := url.Parse(c.OTLPEndpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			l.wrong("otlp_endpoint", "%q must be a URL such as http://127.0.0.1:4318", c.OTLPEndpoint)
		}
	}
	if _, err := c.OTLPHeader(); err != nil {
		l.wrong("otlp_headers", "%v", err)
	}
	if !(c.OTLPSample >= 0 && c.OTLPSample <= 1) { // the negated range check also rejects NaN
		l.wrong("otlp_sample", "is %v, must be between 0 and 1", c.OTLPSample)
	}
}

// checkDoctor checks the settings of the command doctor.
func (l *loader) checkDoctor() {
	c := &l.config
	for _, list := range []struct {
		key   string
		names []string
	}{{"doctor_mail_domains", c.DoctorMailDomains}, {"doctor_address_lists", c.DoctorAddressLists},
		{"doctor_name_lists", c.DoctorNameLists}} {
		if len(list.names) > maxDoctorNames {
			l.wrong(list.key, "has %d names, must have at most %d", len(list.names), maxDoctorNames)
		}
		for _, name := range list.names {
			if !domain.MatchString(hostName(name)) {
				l.wrong(list.key, "%q is not a domain name", name)
			}
		}
	}
	for _, s := range [][2]string{{"doctor_signed_name", c.DoctorSignedName}, {"doctor_bogus_name", c.DoctorBogusName}} {
		if s[1] != "" && !domain.MatchString(hostName(s[1])) {
			l.wrong(s[0], "%q is not a domain name", s[1])
		}
	}
	u, err := url.Parse(c.DoctorClockURL)
	if c.DoctorClockURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil) {
		l.wrong("doctor_clock_url", "%q must be a URL such as https://www.example.com/, without a user name or password",
			c.DoctorClockURL)
	}
}

// maxDoctorNames limits the look-ups and connections of the command doctor.
const maxDoctorNames = 20

// headerName matches the name of an HTTP header field.
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// OTLPHeader returns the header fields of otlp_headers. Its error does not contain the values.
func (c Config) OTLPHeader() (map[string]string, error) {
	all := map[string]string{}
	for part := range strings.SplitSeq(string(c.OTLPHeaders), ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		control := strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f })
		if !ok || !headerName.MatchString(name) || control {
			return nil, fmt.Errorf("has a field that is not name=value, such as authorization=Bearer abc")
		}
		all[name] = value
	}
	return all, nil
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
	l.checkBlobs()
	for key := range strings.FieldsFuncSeq(string(c.SecretKey), func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		if b, err := hex.DecodeString(key); err != nil || len(b) != 32 {
			l.wrong("secret_key", "must be 64 hexadecimal digits; make one with `openssl rand -hex 32`, or leave it empty. "+
				"Earlier keys may follow after commas")
			break
		}
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
	if id := c.FeedbackSenderID; id != "" && (!senderID.MatchString(id) || id == "transactional" ||
		strings.HasPrefix(id, "team-")) {
		l.wrong("feedback_sender_id", "%q must have 5 to 15 letters, digits, hyphens or underscores, and must not be "+
			"transactional or begin with team-", id)
	}
	if len(c.ARCTrustedSealers) > 0 && !c.CheckAuthentication {
		l.wrong("arc_trusted_sealers", "needs check_authentication: without it no seal is looked at")
	}
	for i, s := range c.ARCTrustedSealers {
		c.ARCTrustedSealers[i] = hostName(s)
		if !domain.MatchString(c.ARCTrustedSealers[i]) {
			l.wrong("arc_trusted_sealers", "%q is no domain; write lists.example.com", s)
		}
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
	l.checkResolvers("dns_servers", c.DNSServers, "9.9.9.9 or [2620:fe::fe]:53")
	l.checkResolvers("dnssec_resolvers", c.DNSSECResolvers,
		"127.0.0.1 or [::1]:53, the address of a resolver on this machine")
}

// checkResolvers rejects names and malformed addresses of DNS resolvers. The message shows the examples.
func (l *loader) checkResolvers(key string, servers []string, examples string) {
	for _, s := range servers {
		_, errPort := netip.ParseAddrPort(s)
		_, errAddr := netip.ParseAddr(strings.Trim(s, "[]"))
		if errPort != nil && errAddr != nil {
			l.wrong(key, "%q is no address; write %s", s, examples)
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
	l.checkRelays()
	if c.RelayAddr == "" {
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
	between("mta_sts_port", c.MTASTSPort, 1, math.MaxUint16)
	between("delivery_workers", c.DeliveryWorkers, 0, 100_000)
	between("signers", c.Signers, 0, 10_000)
	between("lane_concurrency", c.LaneConcurrency, 1, 10_000)
	between("connections_max", c.ConnectionsMax, 1, 100_000)
	between("smtp_in_connections", c.SMTPInConnections, 1, 100_000)
	between("smtp_in_per_address", c.SMTPInPerAddress, 0, 100_000)
	between("smtp_submit_connections", c.SMTPSubmitConnections, 1, 100_000)
	between("smtp_submit_per_address", c.SMTPSubmitPerAddress, 0, 100_000)
	between("dns_rate_limit", c.DNSRateLimit, 0, 100_000)
	between("rate_limit", c.RateLimit, 0, 1_000_000)
	between("trial_daily", c.TrialDaily, 0, 1_000_000_000)
	between("trial_monthly", c.TrialMonthly, 0, 1_000_000_000)
	if c.LaneRate != 0 && !(c.LaneRate >= minRate && c.LaneRate <= 1e6) { // the negated range check also rejects NaN
		l.wrong("lane_rate", "is %v, must be between %v and 1000000, or 0 for no limit", c.LaneRate, minRate)
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
	if c.ReportRetention < 15*24*time.Hour {
		l.wrong("report_retention", "is %v, must be at least 360h, because readiness looks at 14 days", c.ReportRetention)
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
	name("report_host", c.ReportHost)
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
	if c.DKIMRotation != 0 && (c.DKIMRotation < 30 || c.DKIMRotation > 1000) {
		l.wrong("dkim_rotation", "is %d, must be 0, or between 30 and 1000", c.DKIMRotation)
	}
	if c.DKIMSelector == c.DKIMSelectorEd25519 {
		l.wrong("dkim_selector_ed25519", "is the same as dkim_selector; each key needs its own")
	}
}
