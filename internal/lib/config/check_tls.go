package config

import (
	"encoding/base64"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// checkHTTPS checks the HTTPS listener and the operator's own certificate.
func (l *loader) checkHTTPS() {
	c := &l.config
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		l.wrong("tls_cert_file", "and tls_key_file belong together; set both or neither")
	}
	switch {
	case c.HTTPSListen == "":
		return
	case !hostPort(c.HTTPSListen, true):
		l.wrong("https_listen", "%q is no address; write :443 or 127.0.0.1:8443", c.HTTPSListen)
	case c.HTTPSListen == c.HTTPListen && !strings.HasSuffix(c.HTTPListen, ":0"):
		l.wrong("https_listen", "is the same as http_listen; write :443 here, and :80 there")
	}
	if !c.ACME && c.TLSCertFile == "" {
		l.wrong("https_listen", "needs a certificate: set acme = true, if you agree to the terms of acme_directory, or "+
			"tls_cert_file and tls_key_file")
	}
	// If another setting is wrong, public_url is not derived, and so may be empty.
	if u, err := url.Parse(c.PublicURL); err == nil && c.PublicURL != "" && c.TLSCertFile == "" &&
		!isPublicName(u.Hostname()) {
		l.wrong("public_url", "no authority issues a certificate for the host of %q; use a full host name, such as "+
			"mail.example.com, or set tls_cert_file", c.PublicURL)
	}
	for _, s := range [][2]string{{"public_url", c.PublicURL}, {"tracking_url", c.TrackingURL}} {
		if strings.HasPrefix(s[1], "http://") {
			l.wrong(s[0], "%q must begin with https://, because https_listen is set", s[1])
		}
	}
}

// isPublicName reports whether a host has a name that is known beyond its own network.
func isPublicName(host string) bool {
	_, err := netip.ParseAddr(host)
	return err != nil && strings.Contains(host, ".") && !strings.HasSuffix(host, ".localhost")
}

// checkACME checks the settings of the certificate authority. Settings that acme = false makes useless are checked too,
// so that nobody finds out about a mistake later.
func (l *loader) checkACME() {
	c := &l.config
	u, err := url.Parse(c.ACMEDirectory)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		l.wrong("acme_directory", "%q must be a URL such as https://acme-v02.api.letsencrypt.org/directory",
			c.ACMEDirectory)
	}
	if local, host, ok := strings.Cut(c.ACMEEmail, "@"); c.ACMEEmail != "" &&
		(!ok || local == "" || !domain.MatchString(hostName(host)) || strings.ContainsAny(local, " ,<>?&:")) {
		l.wrong("acme_email", "%q is no address; write admin@example.com", c.ACMEEmail)
	}
	if (c.ACMEEABKeyID == "") != (c.ACMEEABKey == "") {
		l.wrong("acme_eab_key_id", "and acme_eab_key belong together; set both or neither")
	}
	if _, err := base64.RawURLEncoding.DecodeString(string(c.ACMEEABKey)); err != nil {
		l.wrong("acme_eab_key", "is not base64url; copy it as the authority shows it")
	}
	if len(c.ACMEChallenges) == 0 {
		l.wrong("acme_challenges", "is empty; name at least one of http-01, tls-alpn-01")
	}
	for i, kind := range c.ACMEChallenges {
		l.oneOf("acme_challenges", kind, choices["acme_challenges"]...)
		if slices.Contains(c.ACMEChallenges[:i], kind) {
			l.wrong("acme_challenges", "%s is named twice", kind)
		}
	}
	if slices.Equal(c.ACMEChallenges, []string{"tls-alpn-01"}) && c.ACME && c.HTTPSListen == "" {
		l.wrong("acme_challenges", "tls-alpn-01 needs https_listen; add http-01, or set https_listen")
	}
	l.oneOf("acme_dns_key_algorithm", c.ACMEDNSKeyAlgorithm, choices["acme_dns_key_algorithm"]...)
	if c.ACMEDNSServer == "" {
		return
	}
	if c.ACMEDNSHook != "" {
		l.wrong("acme_dns_hook", "and acme_dns_server exclude each other; set only one of them")
	}
	if !hostPort(c.ACMEDNSServer, false) {
		l.wrong("acme_dns_server", "%q is not address:port; write 192.0.2.1:53", c.ACMEDNSServer)
	}
	for _, s := range [][2]string{{"acme_dns_zone", c.ACMEDNSZone}, {"acme_dns_key_name", c.ACMEDNSKeyName}} {
		if s[1] == "" || !domain.MatchString(s[1]) {
			l.wrong(s[0], "%q is not a domain name; acme_dns_server needs it", s[1])
		}
	}
	if b, err := base64.StdEncoding.DecodeString(string(c.ACMEDNSKeySecret)); err != nil || len(b) == 0 {
		l.wrong("acme_dns_key_secret", "is not base64, as tsig-keygen prints it; acme_dns_server needs it")
	}
}
