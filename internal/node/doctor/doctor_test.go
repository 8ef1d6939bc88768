package doctor_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/doctor"
	"github.com/postrider/postrider/internal/platform/probe"
	"github.com/postrider/postrider/internal/sending/domains"
)

const host = "mail.example.com"

var (
	now        = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	address    = netip.MustParseAddr("203.0.113.5")
	six        = netip.MustParseAddr("2001:db8::5")
	errMissing = fmt.Errorf("%w: x", resolve.ErrNoName)
	errSilent  = fmt.Errorf("%w: x", resolve.ErrTemporary)
)

// talk is a conversation with a mail host that is set up well.
func talk(name string) probe.SMTP {
	return probe.SMTP{Address: "203.0.113.5:25", Reached: true, Greeting: name + " ESMTP", Name: name, StartTLS: true,
		Certificate: certificate()}
}

func certificate() *probe.Certificate {
	return &probe.Certificate{Names: []string{host}, Issuer: "Authority", NotAfter: now.Add(60 * 24 * time.Hour)}
}

func unreachable() probe.SMTP {
	return probe.SMTP{Address: "203.0.113.5:25", Problem: "no connection: no answer in time"}
}

// healthy returns the facts about an installation without problems, which another installation has looked at.
func healthy() doctor.Facts {
	offset := 300 * time.Millisecond
	pass := func(name, purpose string) doctor.SPF {
		return doctor.SPF{Name: name, Purpose: purpose, Records: []string{"v=spf1 ip4:203.0.113.5 -all"}, Addr: address,
			Result: "pass"}
	}
	return doctor.Facts{Now: now,
		Config: config.Config{Hostname: host, BounceHost: host, InboundHost: "in.example.com", SPFInclude: host,
			PublicURL: "https://app.example.com", Transport: "direct", SMTPPort: 25, NoticeFrom: "notices@example.com",
			Roles: []string{"api", "delivery", "jobs", "receiving", "submission"}},
		Host:    doctor.Host{Addrs: []doctor.Address{{Addr: address, Public: true, Names: []string{host}}}},
		Source:  &doctor.Source{Local: address, Public: true},
		Inbound: &doctor.Listener{Setting: "smtp_in_listen", Address: ":25", Talk: talk(host)},
		Submits: []doctor.Listener{{Setting: "smtp_submit_listen", Address: ":587", Talk: talk(host)}},
		Mail: []doctor.MailHost{{Setting: "bounce_host", Name: host, Talks: []doctor.Talk{{Addr: address, Talk: talk(host)}}},
			{Setting: "inbound_host", Name: "in.example.com", Talks: []doctor.Talk{{Addr: address, Talk: talk(host)}}}},
		Outgoing: []doctor.Outgoing{{Name: "gmail.com", Talks: []probe.SMTP{talk("mx.google.com")}},
			{Name: "yahoo.com", Talks: []probe.SMTP{unreachable(), talk("mx.yahoo.com")}}},
		Resolver: &doctor.Resolver{Signed: "signed.example",
			Servers: []resolve.Validation{{Server: "127.0.0.1:53", Known: true, Authentic: true, RefusesBogus: true}}},
		SPF:     []doctor.SPF{pass(host, "spf_include"), pass(host, "hostname")},
		DMARC:   []doctor.DMARC{{Domain: host, At: "example.com", Records: []string{"v=DMARC1; p=none"}}},
		Reports: []doctor.ReportHost{{Name: "in.example.com", Records: []string{"v=DMARC1"}}},
		Notices: &doctor.Notices{From: "notices@example.com", Domain: "example.com", Found: true, Own: true, MaySend: true},
		Domains: &doctor.Domains{All: []doctor.Domain{{Name: "example.com", Team: "Acme",
			Records: []domains.Record{{Key: "dkim", Type: "TXT", FQDN: "s._domainkey.example.com", Status: domains.Verified}},
			DMARC:   doctor.DMARC{Domain: "example.com", At: "example.com", Records: []string{"v=DMARC1;p=REJECT"}}}}},
		Web: &doctor.Web{Addrs: []netip.Addr{address},
			Answer: probe.Web{Reached: true, Status: 200, Expected: true, Certificate: certificate()}},
		Requests: []doctor.CertificateRequest{{Names: []string{host}, Source: "acme"}},
		Clock:    doctor.Clock{Database: &offset, World: &offset, URL: "https://time.example"},
		Disks: []doctor.Disk{{Setting: "data_dir", Folder: "/data", Free: 50 << 30, Size: 100 << 30, FreeFiles: 500,
			Files: 1000}, {Setting: "blob_url", Folder: "/blobs", Free: 50 << 30, Size: 100 << 30}},
		Database: doctor.Database{Place: "database_url", Version: "PostgreSQL 15.4", Major: 15, Commit: 2 * time.Millisecond},
		Key:      doctor.Key{Place: "/data/secret.key", Folder: "/data", Mode: 0o700},
		Secrets:  []doctor.SecretFile{{Setting: "tls_key_file", Path: "/mail.key"}},
		Blobs:    &doctor.Blobs{Place: "/blobs"},

		Destinations: &doctor.Destinations{File: "/destinations.toml"},

		Backup: &doctor.Backup{Last: now.Add(-time.Hour), MaxAge: 48 * time.Hour},
		Lists: []doctor.List{{Zone: "list.example", Alive: true,
			Entries: []doctor.Entry{{Subject: "203.0.113.5"}}}},
		Outside: &doctor.Outside{From: "https://other.example", Client: address,
			Mail:  map[string][]probe.SMTP{host: {talk(host)}, "in.example.com": {talk(host)}},
			Addrs: map[string][]netip.Addr{host: {address}}, Names: map[netip.Addr][]string{address: {host}},
			Web: &probe.Web{Reached: true, Status: 200, Expected: true, Certificate: certificate()}},
	}
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	r := doctor.NewReport(healthy(), "v1")
	for _, f := range r.Findings {
		if f.Status != doctor.OK || f.Advice != "" || f.Meaning == "" || f.Subject == "" {
			t.Errorf("%+v", f)
		}
	}
	if r.Status != doctor.OK || r.Counts[doctor.OK] != len(r.Findings) || len(r.Findings) < 25 ||
		r.From != "https://other.example" || r.Hostname != host || !r.CheckedAt.Equal(now) {
		t.Errorf("%+v", r)
	}
}

// Each case changes one fact about a healthy installation. The only findings that are not good are the wanted ones.
func TestChecks(t *testing.T) {
	t.Parallel()
	type facts = doctor.Facts
	days := func(n int) time.Time { return now.Add(time.Duration(n) * 24 * time.Hour) }
	record := func(f *facts) *domains.Record { return &f.Domains.All[0].Records[0] }
	for _, c := range []struct {
		name   string
		change func(f *facts)
		want   string // id, status and parts of the meaning and the advice; several findings are separated by line feeds
	}{
		{"host name of a local network", func(f *facts) { f.Config.Hostname = "vm" },
			"host.name failure other servers can look up|Set hostname\n" + "outside\n" + "smtp.ehlo"},
		{"no address", func(f *facts) { f.Host = doctor.Host{Err: errMissing} },
			"host.address failure no address record|Add an A record"},
		{"no answer about the host name", func(f *facts) { f.Host = doctor.Host{Err: errSilent} },
			"host.address not_checked gave no answer|dns.servers"},
		{"private address", func(f *facts) { f.Host.Addrs[0].Public = false },
			"host.address failure cannot reach|A record of mail.example.com"},
		{"no PTR", func(f *facts) { f.Host.Addrs[0].Names, f.Host.Addrs[0].Err = nil, errMissing },
			"host.ptr failure no PTR record|reverse DNS"},
		{"no answer about the PTR", func(f *facts) { f.Host.Addrs[0].Err = errSilent },
			"host.ptr not_checked no answer about the PTR|dns.servers"},
		{"PTR of the provider", func(f *facts) { f.Host.Addrs[0].Names = []string{"vps7.provider.example"} },
			"host.ptr failure leads to vps7.provider.example, which does not lead back|PTR record to mail.example.com"},
		{"confirmed PTR of another name", func(f *facts) {
			f.Host.Addrs[0].Names = []string{"vps7.provider.example"}
			f.Host.Addrs[0].Confirmed = []string{"vps7.provider.example"}
		}, "host.ptr warning calls itself mail.example.com|Or set hostname to vps7.provider.example"},
		{"IPv6 without PTR", func(f *facts) {
			f.Host.Addrs = append(f.Host.Addrs, doctor.Address{Addr: six, Public: true})
			f.Outside.Addrs[host] = []netip.Addr{six, address}
			f.Outside.Names[six] = []string{host}
		}, "host.ptr failure no PTR record|remove the AAAA record"},
		{"other source", func(f *facts) { f.Source.Local = netip.MustParseAddr("203.0.113.9") },
			"host.source failure leads to 203.0.113.5|SPF record of mail.example.com"},
		{"behind a router", func(f *facts) {
			f.Source = &doctor.Source{Local: netip.MustParseAddr("10.0.0.2")}
			f.Outside.Client = netip.MustParseAddr("203.0.113.77")
		}, "host.source failure leave from this address|PTR"},
		{"other addresses outside", func(f *facts) {
			f.Outside.Addrs[host] = []netip.Addr{netip.MustParseAddr("203.0.113.6")}
			f.Outside.Names = map[netip.Addr][]string{netip.MustParseAddr("203.0.113.6"): {host + "."}}
		}, "outside warning find the addresses 203.0.113.6, and this machine 203.0.113.5|TTL"},
		{"no address outside", func(f *facts) { delete(f.Outside.Addrs, host) },
			"outside failure find no address|public DNS"},
		{"other PTR outside", func(f *facts) { f.Outside.Names[address] = []string{"x.example"} },
			"outside failure the names x.example|PTR record to mail.example.com"},
		{"no PTR outside", func(f *facts) { f.Outside.Names = nil }, "outside failure no PTR record|PTR record"},

		{"no answer about the host name outside", func(f *facts) {
			delete(f.Outside.Addrs, host)
			f.Outside.Silent = map[string]bool{host: true}
		}, "outside not_checked gave no answer|again later"},
		{"no answer about the PTR outside", func(f *facts) {
			f.Outside.Names, f.Outside.Silent = nil, map[string]bool{host: true}
		}, "outside not_checked gave no answer|again later"},

		{"no receiving", func(f *facts) { f.Config.Roles = []string{"api", "delivery"}; f.Inbound = nil },
			"smtp.ehlo not_checked does not have the role receiving|add receiving"},
		{"receiving port not seen", func(f *facts) { f.Inbound.Skipped = "Not today." },
			"smtp.ehlo not_checked Not today.|--from"},
		{"receiving port closed", func(f *facts) { f.Inbound.Talk = unreachable() },
			"smtp.ehlo failure No program answers at smtp_in_listen|Start the node"},
		{"no mail host at the receiving port", func(f *facts) {
			f.Inbound.Talk = probe.SMTP{Reached: true, Problem: "the greeting is not SMTP"}
		}, "smtp.ehlo failure does not behave as a mail host: the greeting is not SMTP|which program"},
		{"other EHLO", func(f *facts) { f.Inbound.Talk.Name = "exim.example.com" },
			"smtp.ehlo failure calls itself exim.example.com, but hostname is mail.example.com|restart the node"},
		{"no STARTTLS", func(f *facts) { f.Inbound.Talk.StartTLS = false },
			"smtp.certificate failure offers no encryption|firewalls that change SMTP"},
		{"broken TLS", func(f *facts) { f.Inbound.Talk.Certificate, f.Inbound.Talk.Problem = nil, "TLS failed: x" },
			"smtp.certificate failure encrypted connection failed: TLS failed: x|log"},
		{"self-signed", func(f *facts) { f.Inbound.Talk.Certificate.Problem = "it is self-signed" },
			"smtp.certificate warning self-signed|Set acme"},
		{"self-signed submission", func(f *facts) { f.Submits[0].Talk.Certificate.Problem = "it is self-signed" },
			"smtp.submission failure self-signed|Set acme"},
		{"submission closed", func(f *facts) { f.Submits[0].Talk = unreachable() },
			"smtp.submission failure No program answers at smtp_submit_listen|Start the node"},
		{"submission not seen", func(f *facts) { f.Submits[0].Skipped = "Not today." },
			"smtp.submission not_checked Not today."},
		{"certificate of SMTP ends", func(f *facts) { f.Inbound.Talk.Certificate.NotAfter = days(13) },
			"smtp.certificate warning expires in 13 days, on 2026-12-13|Renew it"},

		{"bounce host without address", func(f *facts) {
			f.Mail[0] = doctor.MailHost{Setting: "bounce_host", Name: host, Err: errMissing}
		}, "mx.host failure bounces are lost|correct bounce_host"},
		{"no answer about the bounce host", func(f *facts) {
			f.Mail[0] = doctor.MailHost{Setting: "bounce_host", Name: host, Err: errSilent}
		}, "mx.host not_checked no answer|dns.servers"},
		{"bounce host is an alias", func(f *facts) { f.Mail[0].Alias = "other.example" },
			"mx.host warning alias (CNAME) of other.example|Replace the CNAME"},
		{"mail leads to nobody", func(f *facts) {
			f.Mail[1].Talks[0] = doctor.Talk{Addr: netip.MustParseAddr("203.0.113.66"), Talk: unreachable()}
		}, "mx.host failure No mail host answers there|Start a node with the role receiving"},
		{"mail leads to a stranger", func(f *facts) { f.Mail[1].Talks[0].Talk.Name = "mx.stranger.example" },
			"mx.host warning called mx.stranger.example|Compare the name"},
		{"mail leads to a web server", func(f *facts) {
			f.Mail[1].Talks[0].Talk = probe.SMTP{Reached: true, Problem: "the greeting is not SMTP"}
		}, "mx.host failure does not behave as a mail host|Correct the address record"},
		{"own address behind a router", func(f *facts) { f.Mail[1].Talks[0].Talk = unreachable() },
			"mx.host not_checked router or a load balancer|--from"},
		{"own address on this machine", func(f *facts) {
			f.Mail[1].Talks[0] = doctor.Talk{Addr: address, Local: true, Talk: unreachable()}
		}, "mx.host failure No mail host answers there|firewall"},

		{"nobody looked", func(f *facts) { f.Outside = nil },
			"smtp.in not_checked cannot be seen from this machine|--from URL"},
		{"the other did not look", func(f *facts) {
			f.Outside = &doctor.Outside{From: "https://other.example", Problem: "it answers 401 no"}
		}, "outside warning it answers 401 no|API key\n" + "smtp.in not_checked it answers 401 no|--from URL"},
		{"port 25 closed from outside", func(f *facts) { f.Outside.Mail[host][0] = unreachable() },
			"smtp.in failure cannot connect to port 25|provider"},
		{"something else at port 25", func(f *facts) {
			f.Outside.Mail[host][0] = probe.SMTP{Reached: true, Problem: "the greeting is 554 no"}
		}, "smtp.in failure is not a mail host: the greeting is 554 no|proxy"},
		{"a stranger at port 25", func(f *facts) { f.Outside.Mail[host][0].Name = "mx.stranger.example" },
			"smtp.in warning called mx.stranger.example|Compare"},
		{"STARTTLS fails from outside", func(f *facts) { f.Outside.Mail[host][0].Problem = "TLS failed: x" },
			"smtp.in warning conversation failed: TLS failed: x|log"},
		{"no address of a mail host outside", func(f *facts) { delete(f.Outside.Mail, "in.example.com") },
			"smtp.in failure finds no address|A record for in.example.com"},
		{"no answer about a mail host outside", func(f *facts) {
			delete(f.Outside.Mail, "in.example.com")
			f.Outside.Silent = map[string]bool{"in.example.com": true}
		}, "smtp.in not_checked gave no answer|again later"},

		{"port 25 closed out", func(f *facts) {
			f.Outgoing[0].Talks, f.Outgoing[1].Talks = []probe.SMTP{unreachable()}, []probe.SMTP{unreachable()}
		}, "smtp.out failure no email leaves|relay_addr"},
		{"one provider away", func(f *facts) { f.Outgoing[0].Talks = []probe.SMTP{unreachable()} },
			"smtp.out warning hosts of gmail.com cannot be reached|later"},
		{"no provider found", func(f *facts) {
			f.Outgoing = []doctor.Outgoing{{Name: "gmail.com", Err: errSilent}}
		}, "smtp.out not_checked No mail host of gmail.com was found|doctor_mail_domains"},
		{"capture", func(f *facts) { f.Config.Transport = "capture" }, "smtp.out not_checked transport is capture"},
		{"relay away", func(f *facts) {
			f.Config.Transport = "relay"
			f.Relays = []doctor.Relay{{Name: "main r:25", Problem: "no answer in time"}}
		}, "smtp.relay failure cannot be used (no answer in time)|address, user name, password and TLS"},
		{"one of two relays away", func(f *facts) {
			f.Relays = []doctor.Relay{{Name: "main r:25"}, {Name: "spare s:25", Problem: "no answer in time"}}
		}, "smtp.relay warning go through another one|address, user name, password and TLS"},
		{"no delivery", func(f *facts) { f.Config.Roles = []string{"api", "jobs", "receiving"} },
			"smtp.out not_checked does not have the role delivery|on a node that has it"},

		{"no resolver", func(f *facts) { f.Resolver = &doctor.Resolver{Err: errors.New("no")} },
			"dns.servers failure No DNS server is known|Set dns_servers"},
		{"silent resolver", func(f *facts) { f.Resolver.Servers[0] = resolve.Validation{Server: "a", Err: errSilent} },
			"dns.servers failure emails wait|unbound"},
		{"one silent resolver", func(f *facts) {
			f.Resolver.Servers = append(f.Resolver.Servers, resolve.Validation{Server: "b:53", Err: errSilent})
		}, "dns.servers warning seconds longer|remove it"},
		{"resolver without validation", func(f *facts) { f.Resolver.Servers[0].Authentic = false },
			"dns.validation warning does not validate|unbound"},
		{"resolver that accepts a bogus name", func(f *facts) { f.Resolver.Servers[0].RefusesBogus = false },
			"dns.validation warning wrong signature|unbound"},
		{"bogus name away", func(f *facts) {
			f.Resolver.Servers[0].RefusesBogus, f.Resolver.Servers[0].BogusUnknown = false, true
		}, ""},
		{"signed name away", func(f *facts) { f.Resolver.Servers[0].Known = false },
			"dns.validation not_checked find no address of signed.example|has an address"},
		{"no signed name", func(f *facts) { f.Resolver.Signed = "" },
			"dns.validation not_checked doctor_signed_name is empty"},

		{"no SPF", func(f *facts) { f.SPF[0].Records, f.SPF[0].Err = nil, errMissing },
			"spf.include failure fails SPF|v=spf1 ip4:203.0.113.5 -all"},
		{"no SPF of the host name", func(f *facts) { f.SPF[1].Records = nil },
			"spf.hostname warning bounces|Add a TXT record"},
		{"no answer about SPF", func(f *facts) { f.SPF[0].Err = errSilent }, "spf.include not_checked no answer|dns.servers"},
		{"two SPF records", func(f *facts) { f.SPF[0].Records = []string{"v=spf1 -all", "v=spf1 a -all"} },
			"spf.include failure has 2 SPF records|Keep one record"},
		{"address not allowed", func(f *facts) { f.SPF[0].Result = "fail" },
			"spf.include failure does not allow the address (fail)|Add ip4:203.0.113.5 to the record before its last term"},
		{"SPF of IPv6", func(f *facts) { f.SPF[0].Result, f.SPF[0].Addr = "softfail", six },
			"spf.include failure (softfail)|Add ip6:2001:db8::5"},
		{"SPF with an error", func(f *facts) { f.SPF[0].Result, f.SPF[0].Detail = "permerror", "too many lookups" },
			"spf.include failure too many lookups|Correct the record"},
		{"no DMARC", func(f *facts) { f.DMARC[0].Records = nil },
			"dmarc warning no DMARC record|_dmarc.example.com: v=DMARC1; p=none"},
		{"no answer about DMARC", func(f *facts) { f.DMARC[0].Err = errSilent }, "dmarc not_checked no answer|dns.servers"},
		{"no DMARC reports", func(f *facts) { f.Reports[0].Records = []string{"v=spf1 -all"} },
			"dmarc.reports warning no record allows it|*._report._dmarc.in.example.com: v=DMARC1"},
		{"no answer about DMARC reports", func(f *facts) { f.Reports[0].Records, f.Reports[0].Err = nil, errSilent },
			"dmarc.reports not_checked no answer|dns.servers"},
		{"no counts for DMARC reports", func(f *facts) { f.DMARCSending = &doctor.DMARCSending{Err: errSilent} },
			"dmarc.sending not_checked cannot be read|the database"},
		{"two DMARC records", func(f *facts) { f.DMARC[0].Records = []string{"v=DMARC1", "v=DMARC1"} },
			"dmarc failure has 2 DMARC records|Keep one"},
		{"DMARC without a policy", func(f *facts) { f.DMARC[0].Records = []string{"v=DMARC1; p=block"} },
			"dmarc failure p=block|Set p to none"},

		{"no notices", func(f *facts) { f.Notices = &doctor.Notices{} }, "notices not_checked not set|Set notice_from"},
		{"no address for notices", func(f *facts) { f.Notices.Domain = "" }, "notices failure is not an address|Write it"},
		{"unknown domain of notices", func(f *facts) { f.Notices.Found = false },
			"notices failure was not added|Add the domain"},
		{"another team's domain of notices", func(f *facts) { f.Notices.Own = false },
			"notices failure another team|operator_team"},
		{"unverified domain of notices", func(f *facts) { f.Notices.MaySend = false },
			"notices failure not verified|DNS records"},
		{"missing DKIM", func(f *facts) { record(f).Status = domains.Failed },
			"domains failure 0 of 1 domains|single records\n" +
				"domain.dkim failure not valid, and large providers|Add this record"},
		{"other SPF of a domain", func(f *facts) {
			*record(f) = domains.Record{Key: "spf", Kind: "SPF", Type: "TXT", FQDN: "send.example.com", Status: domains.Failed,
				Value: "v=spf1 include:mail.example.com ~all", Found: "v=spf1 include:other.example ~all"}
		}, "domains failure 0 of 1|single\n" +
			"domain.spf failure other values: v=spf1 include:other.example|Add include:mail.example.com"},
		{"no tracking", func(f *facts) { record(f).Key, record(f).Status = "tracking", domains.Failed },
			"domains warning 0 of 1|single\n" + "domain.tracking warning links|Wanted"},
		{"no answer about a domain", func(f *facts) { record(f).Unanswered = true },
			"domains not_checked 0 of 1 domains have all records and a DMARC policy. 1 could not|dns.servers\n" +
				"domain.dkim not_checked No name server answered|name servers of example.com"},
		{"a record behind a delegation", func(f *facts) {
			*record(f) = domains.Record{Key: "cname-s1", Type: "CNAME", FQDN: "s1._domainkey.example.com", Status: domains.Failed,
				Hidden: true}
		}, "domains not_checked 1 could not|single records\n" +
			"domain.cname_s1 not_checked still delegated to this installation|remove the NS records"},
		{"no DMARC of a domain", func(f *facts) { f.Domains.All[0].DMARC.Records = nil },
			"domains warning 0 of 1|single\n" + "domain.dmarc warning no DMARC record|Add a TXT record"},
		{"no time for a domain", func(f *facts) {
			f.Domains.All = append(f.Domains.All, doctor.Domain{Name: "late.example", Late: true})
		}, ""},
		{"no domains", func(f *facts) { f.Domains.All = nil }, "domains not_checked No team has a verified domain"},
		{"unknown domain", func(f *facts) { f.Domains = &doctor.Domains{Only: "x.example"} },
			"domains not_checked no such domain|spelling"},
		{"domains cannot be read", func(f *facts) { f.Domains = &doctor.Domains{Err: errors.New("no")} },
			"domains not_checked cannot be read|database"},

		{"local public URL", func(f *facts) { f.Config.PublicURL = "http://localhost:8080" },
			"web.public_url warning only this machine can open|Set public_url"},
		{"public URL away", func(f *facts) { f.Outside.Web = &probe.Web{Problem: "no answer in time"} },
			"web.public_url failure from outside|reverse proxy"},
		{"public URL away from here", func(f *facts) {
			f.Outside, f.Web.Addrs = nil, []netip.Addr{netip.MustParseAddr("203.0.113.99")}
			f.Web.Answer = probe.Web{Problem: "no answer in time"}
		}, "web.public_url failure from this machine|DNS record of app.example.com\n" + "smtp.in"},
		{"public URL that cannot be looked up", func(f *facts) {
			f.Outside, f.Web.Err, f.Web.Answer = nil, errSilent, probe.Web{Problem: "no answer"}
		}, "web.public_url not_checked no answer about the name|dns.servers\n" + "smtp.in"},
		{"public URL behind a router", func(f *facts) { f.Outside, f.Web.Answer = nil, probe.Web{Problem: "no answer"} },
			"web.public_url not_checked router or a load balancer|--from\n" + "smtp.in"},
		{"something else at the public URL", func(f *facts) { f.Outside.Web.Expected, f.Outside.Web.Status = false, 404 },
			"web.public_url failure Something else than this installation answers at the address (status 404)|proxy"},
		{"public URL without a key", func(f *facts) {
			f.Outside.Web.Expected, f.Key.Err = false, errors.New("it is missing")
		}, "web.public_url not_checked only the secret key shows|secret_key\n" +
			"secret_key failure it is missing|Put the key"},
		{"public URL in clear", func(f *facts) { f.Config.PublicURL = "http://app.example.com" },
			"web.public_url warning without encryption|https_listen"},
		{"expired certificate", func(f *facts) { f.Outside.Web.Certificate.Problem = "it expired on 2026-11-01" },
			"web.certificate failure it expired on 2026-11-01|Set acme"},
		{"certificate ends", func(f *facts) { f.Outside.Web.Certificate.NotAfter = days(1).Add(time.Hour) },
			"web.certificate warning expires in 1 day,|Renew it"},
		{"failed request", func(f *facts) { f.Requests[0].LastError = "urn:ietf:params:acme:error:dns" },
			"certificates failure acme:error:dns|authority"},
		{"certificates cannot be loaded", func(f *facts) { f.Requests[0] = doctor.CertificateRequest{LastError: "no key"} },
			"certificates failure cannot be loaded: no key|Correct the setting"},
		{"wrong file", func(f *facts) { f.Requests[0] = doctor.CertificateRequest{Source: "files", LastError: "it expired"} },
			"certificates failure tls_cert_file has a problem|Replace the file"},

		{"clock ahead", func(f *facts) { d := -time.Hour; f.Clock.World = &d },
			"clock.world failure 1h0m0s ahead of that of https://time.example|chrony"},
		{"clock behind", func(f *facts) { d := 10 * time.Second; f.Clock.Database = &d },
			"clock.database warning 10s behind that of PostgreSQL|Synchronize"},
		{"clock unknown", func(f *facts) { f.Clock.World, f.Clock.Problem = nil, "no answer" },
			"clock.world not_checked is not known: no answer|doctor_clock_url"},
		{"disk nearly full", func(f *facts) { f.Disks[0].Free = 9 << 30 },
			"disk.space warning 9.0 % of the bytes are free (9216 MB)|email_retention"},
		{"disk full", func(f *facts) { f.Disks[0].Free = 2 << 30 }, "disk.space failure 2.0 %|enlarge the disk"},
		{"small disk full", func(f *facts) { f.Disks[0].Free, f.Disks[0].Size = 31<<20, 100<<20 },
			"disk.space failure 31.0 %|Free some space"},
		{"few inodes", func(f *facts) { f.Disks[0].FreeFiles = 20 }, "disk.files failure 2.0 % of the inodes|more inodes"},
		{"disk cannot be measured", func(f *facts) { f.Disks[0].Err = errors.New("gone") },
			"disk.space failure cannot be measured: gone|folder exists"},

		{"blobs away", func(f *facts) { f.Blobs.Err = errors.New("status 403") },
			"blobs failure cannot be stored and read: status 403|blob_url"},
		{"invalid destinations", func(f *facts) { f.Destinations.Err = errors.New("[a].rate: is wrong") },
			"destinations failure [a].rate: is wrong|Correct the file"},
		{"no database", func(f *facts) { f.Database.Err = errors.New("refused") },
			"database.version failure cannot be used: refused|database_url"},
		{"old PostgreSQL", func(f *facts) { f.Database.Version, f.Database.Major = "PostgreSQL 14.23", 14 },
			"database.version warning no more security fixes|Upgrade"},
		{"damaged database", func(f *facts) { f.Database.Err, f.Database.Damaged = errors.New("malformed"), true },
			"database.version failure is damaged: malformed|restore the last backup"},
		{"full disk", func(f *facts) { f.Database.Commits = errors.New("The disk is full.") },
			"database.commit failure No change can be committed: The disk is full. The node|disk"},
		{"old tables", func(f *facts) { f.Database.Schema = errors.New("lacks 0009") },
			"database.schema warning lacks 0009|postrider migrate\n" +
				"database.commit not_checked tables of another program|database.schema"},
		{"moved", func(f *facts) { f.Database.Moved = "db2" }, "database.commit not_checked moved to db2|Set database_url"},
		{"standby", func(f *facts) { f.Database.Commits = errors.New("read-only") },
			"database.commit failure read-only|primary"},
		{"slow commits", func(f *facts) { f.Database.Commit = 250 * time.Millisecond },
			"database.commit warning takes 250ms|fsync"},
		{"wrong key", func(f *facts) { f.Key.Err = errors.New("it is not the one") },
			"secret_key failure it is not the one|Put the key"},
		{"no check value", func(f *facts) { f.Key.Unknown = true }, "secret_key not_checked no value|Start the node"},
		{"no database to compare the key with", func(f *facts) {
			f.Key.Unknown, f.Database.Err = true, errors.New("refused")
		}, "secret_key not_checked cannot be compared|database.version\n" + "database.version failure refused|database_url"},
		{"open key", func(f *facts) { f.Key.Err, f.Key.FileMode = errors.New("mode 0644"), 0o644 },
			"secret_key failure Other users of this machine can read or change the file (mode 0644)|chmod 600 /data/secret.key"},
		{"open folder", func(f *facts) { f.Key.Mode = 0o755 }, "secret_key.folder warning mode 0755|chmod 700 /data"},
		{"open file with a secret", func(f *facts) { f.Secrets[0].Mode = 0o644 },
			"secret_files warning can read or change the file (mode 0644)|chmod g-w,o= /mail.key"},
		{"folder unknown", func(f *facts) { f.Key.FolderErr = errors.New("no") },
			"secret_key.folder not_checked cannot be examined|as the user of the node"},
		{"key in a setting", func(f *facts) { f.Key.Folder = "" }, ""},
		{"old backup", func(f *facts) { f.Backup.Last = days(-9) }, "backup failure 9 days ago|postrider backup"},
		{"no backup", func(f *facts) { f.Backup = &doctor.Backup{Alone: true, Began: days(-3), MaxAge: 48 * time.Hour} },
			"backup failure There is no backup|postrider backup"},
		{"new installation", func(f *facts) {
			f.Backup = &doctor.Backup{Alone: true, Began: days(-1), MaxAge: 48 * time.Hour}
		}, "backup not_checked is new|postrider backup"},
		{"no backup of PostgreSQL", func(f *facts) { f.Backup = &doctor.Backup{MaxAge: 48 * time.Hour} },
			"backup not_checked none was recorded|--done-elsewhere"},
		{"backups do not matter", func(f *facts) { f.Backup.MaxAge = 0 }, "backup not_checked alert_backup_age is 0s"},

		{"listed", func(f *facts) { f.Lists[0].Entries[0].Answers = []netip.Addr{netip.MustParseAddr("127.0.0.2")} },
			"block_list failure has 203.0.113.5 (127.0.0.2)|removal"},
		{"list refuses", func(f *facts) {
			f.Lists[0].Entries[0].Answers = []netip.Addr{netip.MustParseAddr("127.255.255.254")}
		}, "block_list not_checked does not answer this machine's questions|DNS server on this machine"},
		{"parked list", func(f *facts) { f.Lists[0].Entries[0].Answers = []netip.Addr{netip.MustParseAddr("203.0.113.80")} },
			"block_list not_checked does not answer this machine's|key from the list"},
		{"dead list", func(f *facts) {
			f.Lists[0].Alive = false
			f.Lists[0].Entries[0].Answers = []netip.Addr{netip.MustParseAddr("127.0.0.2")}
		}, "block_list not_checked RFC 5782|Remove it"},
		{"silent list", func(f *facts) { f.Lists[0].Err = errSilent }, "block_list not_checked does not answer|DNS server"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := healthy()
			c.change(&f)
			checkFindings(t, doctor.Check(f), c.want)
		})
	}
}

// checkFindings compares the findings that are not good with the wanted ones. A line that is only an id allows findings
// with this id.
func checkFindings(t *testing.T, all []doctor.Finding, want string) {
	t.Helper()
	lines := map[string]string{}
	for line := range strings.SplitSeq(want, "\n") {
		id, rest, _ := strings.Cut(line, " ")
		lines[id] = rest
	}
	seen := map[string]bool{}
	for _, f := range all {
		rest, wanted := lines[f.ID]
		if f.Status == doctor.OK {
			continue
		}
		seen[f.ID] = true
		if !wanted {
			t.Errorf("not expected: %+v", f)
			continue
		}
		status, texts, _ := strings.Cut(rest, " ")
		meaning, advice, _ := strings.Cut(texts, "|")
		if rest != "" && (string(f.Status) != status || !strings.Contains(f.Meaning, meaning) ||
			!strings.Contains(f.Advice, advice) || (advice == "") != (f.Advice == "")) {
			t.Errorf("%+v\nwant %s: %s", f, f.ID, rest)
		}
	}
	for id, rest := range lines {
		if id != "" && rest != "" && !seen[id] {
			t.Errorf("no finding %s in %+v", id, all)
		}
	}
}
