package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/probe"
)

// certificateSoon is the remaining time of a certificate from which on it should have been renewed.
const certificateSoon = 14 * 24 * time.Hour

// Web is what this machine sees at public_url.
type Web struct {
	Answer probe.Web
	Addrs  []netip.Addr // of the host
	Err    error        // of the look-up of the addresses
}

// CertificateRequest is a certificate of this installation that could not be obtained or loaded.
type CertificateRequest struct {
	Names     []string
	LastError string // "" if nothing is wrong
	Source    string // files or acme; "" if the certificates of this installation cannot be loaded at all
}

// checkExpiry judges how long a valid certificate is still valid.
func (o *one) checkExpiry(f *Facts, subject string, c *probe.Certificate) {
	left := c.NotAfter.Sub(f.Now)
	if left < certificateSoon {
		o.add(Warning, subject, fmt.Sprintf("The certificate expires in %s, on %s.", days(left),
			c.NotAfter.UTC().Format(time.DateOnly)), "Renew it. If acme is set, look at the log for failed requests.")
		return
	}
	o.ok(subject, "The certificate of %s is valid for %s.", c.Issuer, days(left))
}

func checkWeb(f *Facts) []Finding {
	public, cert := one{id: "web.public_url"}, one{id: "web.certificate"}
	address := f.Config.PublicURL
	u, err := url.Parse(address)
	switch {
	case f.Web == nil:
		return nil
	case err != nil:
		public.add(Failure, address, "public_url is not a URL.", "Write it as https://mail.example.com.")
		return public.all
	case isLocal(u.Hostname()):
		public.add(Warning, address, "Links in emails lead to this address, which only this machine can open.",
			"Set public_url to the address at which others reach this node.")
		return public.all
	}
	w, from := f.Web.Answer, "this machine"
	if outside := f.Outside; outside != nil && outside.Web != nil {
		w, from = *outside.Web, "outside"
	}
	switch {
	case !w.Reached && from == "this machine" && f.Web.Err != nil && !errors.Is(f.Web.Err, resolve.ErrNotFound):
		public.add(NotChecked, address, "The DNS servers gave no answer about the name.", "See the finding dns.servers.")
		return public.all
	case !w.Reached && from == "this machine" && slices.ContainsFunc(f.Web.Addrs, f.Host.contains) &&
		!slices.ContainsFunc(f.Web.Addrs, func(a netip.Addr) bool { return slices.Contains(f.Local, a) }):
		public.add(NotChecked, address, "This machine cannot reach the address ("+w.Problem+"), which is common if it "+
			"belongs to a router or a load balancer before the machine.", askOutside)
		return public.all
	case !w.Reached:
		public.add(Failure, address, "The address cannot be opened from "+from+" ("+w.Problem+"), so links in emails, the "+
			"API and the dashboard do not work.", "Check the DNS record of "+u.Hostname()+", the firewall, and the reverse "+
			"proxy or https_listen.")
	case !w.Expected && f.Key.Err != nil:
		public.add(NotChecked, address, "A server answers, but only the secret key shows whether it is this installation.",
			"See the finding secret_key.")
	case !w.Expected:
		public.add(Failure, address, fmt.Sprintf("Something else than this installation answers at the address (status %d).",
			w.Status), "Check which program or proxy answers there, and that it passes requests on to http_listen of a node "+
			"of this installation, which runs this version.")
	case u.Scheme != "https":
		public.add(Warning, address, "This installation answers, but without encryption: passwords and keys can be read "+
			"on the way.", "Set https_listen and acme, or let a reverse proxy serve HTTPS, and change public_url to https://.")
	default:
		public.ok(address, "This installation answers, as seen from %s.", from)
	}
	if u.Scheme == "https" && w.Certificate != nil {
		if w.Certificate.Problem != "" {
			cert.add(Failure, u.Host, "Browsers and programs refuse the certificate: "+w.Certificate.Problem+".",
				"Set acme, or replace tls_cert_file, or the certificate of the reverse proxy.")
		} else {
			cert.checkExpiry(f, u.Host, w.Certificate)
		}
	}
	return append(public.all, cert.all...)
}

func isLocal(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.IsLoopback() || ip.IsUnspecified()) || host == "localhost" ||
		strings.HasSuffix(host, ".localhost")
}

// Destinations is the file of destinations.
type Destinations struct {
	File string
	Err  error // why the file cannot be used
}

// checkDestinations reports a file of destinations that no node can use.
func checkDestinations(f *Facts) []Finding {
	o := one{id: "destinations"}
	switch d := f.Destinations; {
	case d == nil:
		return nil
	case d.Err != nil:
		o.add(Failure, d.File, "The file of destinations cannot be used: "+sentence(d.Err)+" A running node keeps the version "+
			"before, and a node does not start with this file.", "Correct the file; a running node reads it again by itself.")
	default:
		o.ok(d.File, "The file of destinations is valid.")
	}
	return o.all
}

// checkRequests reports certificates that this installation could not get.
func checkRequests(f *Facts) []Finding {
	o := one{id: "certificates"}
	for _, r := range f.Requests {
		subject := strings.Join(r.Names, ", ")
		if r.LastError == "" {
			continue
		}
		if r.Source == "" {
			o.add(Failure, subject, "The certificates cannot be loaded: "+r.LastError+".", "Correct the setting; a node "+
				"does not start with it.")
			continue
		}
		if r.Source == "files" {
			o.add(Failure, subject, "The certificate in tls_cert_file has a problem: "+r.LastError+".", "Replace the file; "+
				"the node reads it again when it changes.")
			continue
		}
		o.add(Failure, subject, "The last request for a certificate failed: "+r.LastError, "Correct what the authority "+
			"complains about; the node tries again by itself.")
	}
	if n := len(f.Requests); n > 0 && len(o.all) == 0 {
		o.ok(fmt.Sprintf("%d certificates", n), "No request for a certificate has failed lately.")
	}
	return o.all
}
