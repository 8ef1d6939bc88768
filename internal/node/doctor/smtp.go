package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/probe"
)

// Listener is an SMTP listener of this node, as a client on this machine sees it.
type Listener struct {
	Setting string
	Address string
	Skipped string // why no connection was made; "" if one was
	Talk    probe.SMTP
}

// MailHost is a host to which MX records lead.
type MailHost struct {
	Setting string // such as bounce_host
	Name    string
	Alias   string // target of a CNAME record at the name; "" if there is none
	Err     error  // of the look-up of the addresses
	Talks   []Talk
}

// Talk is a conversation with one address of a host.
type Talk struct {
	Addr  netip.Addr
	Talk  probe.SMTP
	Local bool // the address belongs to this machine
}

// Outgoing is an attempt to reach the mail hosts of a domain.
type Outgoing struct {
	Name  string       // the domain
	Err   error        // of the look-up of the hosts
	Talks []probe.SMTP // until one was reached
}

// Relay is an attempt to use a relay as deliveries do.
type Relay struct {
	Name    string // with the address
	Login   bool   // whether the settings have a user name
	Problem string // why no email can be sent through the relay; "" if it can
}

// Outside is what another installation sees of this one.
type Outside struct {
	From    string // URL of the other installation
	Problem string // why it did not look; the other members are then empty
	Client  netip.Addr
	Mail    map[string][]probe.SMTP // by host name
	Addrs   map[string][]netip.Addr // by host name
	Names   map[netip.Addr][]string // PTR records
	Silent  map[string]bool         // host names about which its DNS servers did not answer everything
	Web     *probe.Web
}

// reached reports whether an attempt reached a mail host, which answered with a greeting.
func (o *Outgoing) reached() bool {
	return slices.ContainsFunc(o.Talks, func(t probe.SMTP) bool { return t.Reached && t.Greeting != "" })
}

func checkInbound(f *Facts) []Finding {
	hello, tls := one{id: "smtp.ehlo"}, one{id: "smtp.certificate"}
	l := f.Inbound
	switch {
	case !has(f, "receiving"):
		hello.add(NotChecked, f.Config.Hostname, "This node does not have the role receiving.", "If no other node has it, "+
			"add receiving to roles; otherwise, bounces and complaints are lost.")
		return hello.all
	case l == nil:
		return nil
	case l.Skipped != "":
		hello.add(NotChecked, l.Setting, l.Skipped, askOutside)
		return hello.all
	case !l.Talk.Reached:
		hello.add(Failure, l.Address, "No program answers at "+l.Setting+" ("+l.Talk.Problem+"), so this node receives no "+
			"mail.", "Start the node, and look at its log.")
		return hello.all
	case l.Talk.Name == "":
		hello.add(Failure, l.Address, "The program at "+l.Setting+" does not behave as a mail host: "+l.Talk.Problem+".",
			"Find out which program uses the port, and look at the log of the node.")
		return hello.all
	case !sameName(l.Talk.Name, f.Config.Hostname):
		hello.add(Failure, l.Address, fmt.Sprintf("The program at %s calls itself %s, but hostname is %s. It is another "+
			"program, or a node that was started with other settings.", l.Setting, l.Talk.Name, f.Config.Hostname),
			"Stop the other program, or restart the node.")
		return hello.all
	default:
		hello.ok(l.Address, "The receiving port answers as %s.", f.Config.Hostname)
	}
	tls.checkSMTPCertificate(f, l.Address, &l.Talk, Warning)
	return append(hello.all, tls.all...)
}

// checkSMTPCertificate judges the certificate in a conversation. Most mail hosts do not verify certificates, but mail
// programs do.
func (o *one) checkSMTPCertificate(f *Facts, subject string, t *probe.SMTP, worst Status) {
	get := "Set acme, or tls_cert_file and tls_key_file."
	switch {
	case !t.StartTLS:
		o.add(Failure, subject, "The port offers no encryption (STARTTLS).", "Look at the log of the node, and at proxies "+
			"and firewalls that change SMTP.")
	case t.Certificate == nil:
		o.add(Failure, subject, "The encrypted connection failed: "+t.Problem+".", "Look at the log of the node.")
	case t.Certificate.Problem != "":
		o.add(worst, subject, "Clients that verify the certificate refuse it: "+t.Certificate.Problem+".", get)
	default:
		o.checkExpiry(f, subject, t.Certificate)
	}
}

func checkSubmission(f *Facts) []Finding {
	o := one{id: "smtp.submission"}
	for _, l := range f.Submits {
		switch {
		case l.Skipped != "":
			o.add(NotChecked, l.Setting, l.Skipped, "")
		case !l.Talk.Reached:
			o.add(Failure, l.Address, "No program answers at "+l.Setting+" ("+l.Talk.Problem+"), so no email can be "+
				"submitted there.", "Start the node, and look at its log.")
		default:
			o.checkSMTPCertificate(f, l.Address, &l.Talk, Failure)
		}
	}
	return o.all
}

// ownNames are the names that nodes of this installation may give themselves.
func ownNames(f *Facts) []string {
	c := f.Config
	all := []string{c.Hostname, c.BounceHost, c.InboundHost}
	for _, r := range c.Regions {
		all = append(all, r.BounceHost, r.InboundHost)
	}
	return all
}

func checkMailHosts(f *Facts) []Finding {
	o := one{id: "mx.host"}
	for _, h := range f.Mail {
		subject := h.Setting + " " + h.Name
		switch {
		case errors.Is(h.Err, resolve.ErrNotFound):
			o.add(Failure, subject, "The name has no address record, but MX records of customers lead to it. Mail and "+
				"bounces are lost.", "Add an A record for "+h.Name+" with the address of a node with the role receiving, or "+
				"correct "+h.Setting+".")
			continue
		case h.Err != nil:
			o.add(NotChecked, subject, "The DNS servers gave no answer about the name.", "See the finding dns.servers.")
			continue
		case h.Alias != "":
			o.add(Warning, subject, "The name is an alias (CNAME) of "+h.Alias+". MX records must not lead to aliases "+
				"(RFC 5321), and some servers refuse them.", "Replace the CNAME record of "+h.Name+" with an A record.")
		}
		for _, t := range h.Talks {
			o.checkMailHost(f, &h, &t)
		}
	}
	return o.all
}

// checkMailHost judges the conversation with one address of a host that should be a receiving node.
func (o *one) checkMailHost(f *Facts, h *MailHost, t *Talk) {
	subject := fmt.Sprintf("%s %s (%s)", h.Setting, h.Name, t.Addr)
	switch {
	case t.Talk.Name != "" && slices.ContainsFunc(ownNames(f), func(n string) bool { return sameName(n, t.Talk.Name) }):
		o.ok(subject, "The address leads to a receiving node, as seen from this machine.")
	case t.Talk.Name != "":
		o.add(Warning, subject, "A mail host called "+t.Talk.Name+" answers there. If it is not a node of this "+
			"installation, mail and bounces are lost.", "Compare the name with hostname on your other nodes. If none has "+
			"it, correct the address record of "+h.Name+".")
	case !t.Talk.Reached && !t.Local && f.Host.contains(t.Addr):
		// Many routers do not lead a connection to their own outer address back.
		o.add(NotChecked, subject, "This machine cannot reach the address ("+t.Talk.Problem+"), which is common "+
			"if it belongs to a router or a load balancer before the machine.", askOutside)
	case !t.Talk.Reached:
		o.add(Failure, subject, "No mail host answers there ("+t.Talk.Problem+"). Mail and bounces are lost.",
			"Start a node with the role receiving at this address, open its port 25 in the firewall, or correct the address "+
				"record of "+h.Name+".")
	default:
		o.add(Failure, subject, "The program there does not behave as a mail host: "+t.Talk.Problem+".",
			"Correct the address record of "+h.Name+", or stop the other program.")
	}
}

// checkPort25In checks that others can reach the receiving port, which only another machine can see.
func checkPort25In(f *Facts) []Finding {
	o := one{id: "smtp.in"}
	if !has(f, "receiving") {
		return nil
	}
	if f.Outside == nil || f.Outside.Problem != "" {
		meaning := "Whether others can reach port 25 cannot be seen from this machine."
		if f.Outside != nil {
			meaning = "The other installation did not look: " + f.Outside.Problem + "."
		}
		o.add(NotChecked, f.Config.Hostname, meaning, askOutside)
		return o.all
	}
	for _, name := range receivingNames(f) {
		o.checkFromOutside(f, name)
	}
	return o.all
}

// receivingNames returns the names of the hosts to which mail is sent, each once.
func receivingNames(f *Facts) []string {
	c := f.Config
	all := []string{c.BounceHost, c.InboundHost}
	slices.Sort(all)
	return slices.Compact(all)
}

func (o *one) checkFromOutside(f *Facts, name string) {
	talks := f.Outside.Mail[name]
	if len(talks) == 0 && f.Outside.Silent[name] {
		o.add(NotChecked, name, silentOutside, tryLater)
		return
	}
	if len(talks) == 0 {
		o.add(Failure, name, "The other installation finds no address of the name.", "Add an A record for "+name+".")
		return
	}
	for _, t := range talks {
		subject := name + " (" + t.Address + ")"
		switch {
		case !t.Reached:
			o.add(Failure, subject, "Others cannot connect to port 25 ("+t.Problem+"), so mail and bounces are lost.",
				"Open port 25 for incoming connections in the firewalls of this machine and of its provider.")
		case t.Name == "":
			o.add(Failure, subject, "What answers at port 25 is not a mail host: "+t.Problem+".",
				"Find out which program or proxy answers there.")
		case !slices.ContainsFunc(ownNames(f), func(n string) bool { return sameName(n, t.Name) }):
			o.add(Warning, subject, "A mail host called "+t.Name+" answers at port 25. If it is not a node of this "+
				"installation, mail and bounces are lost.", "Compare the name with hostname on your other nodes.")
		case t.Problem != "":
			o.add(Warning, subject, "Port 25 can be reached, but the conversation failed: "+t.Problem+".",
				"Look at the log of the node.")
		default:
			o.ok(subject, "Others reach port 25, which answers as %s.", t.Name)
		}
	}
}

func checkOutgoing(f *Facts) []Finding {
	o := one{id: "smtp.out"}
	switch {
	case !has(f, "delivery"):
		o.add(NotChecked, f.Config.Hostname, "This node does not have the role delivery.",
			"Run doctor on a node that has it.")
	case f.Config.Transport == "capture":
		o.add(NotChecked, f.Config.Hostname, "No email leaves this installation, because transport is capture.", "")
	default:
		if f.Config.Transport == "direct" {
			o.checkDirect(f)
		}
		return append(o.all, checkRelays(f)...)
	}
	return o.all
}

// checkRelays judges the attempts to use the relays. If another one works, it takes most of the mail.
func checkRelays(f *Facts) []Finding {
	o := one{id: "smtp.relay"}
	failed := Failure
	if slices.ContainsFunc(f.Relays, func(r Relay) bool { return r.Problem == "" }) {
		failed = Warning
	}
	for _, r := range f.Relays {
		switch {
		case r.Problem != "":
			o.add(failed, r.Name, "The relay cannot be used ("+r.Problem+"), so its emails wait or go through another one.",
				"Check its address, user name, password and TLS in the settings, and ask its operator whether this machine "+
					"may use it.")
		case r.Login:
			o.ok(r.Name, "The relay answers, and accepts the user name and the password.")
		default:
			o.ok(r.Name, "The relay answers.")
		}
	}
	return o.all
}

// checkDirect judges the attempts to reach mail hosts of well-known domains.
func (o *one) checkDirect(f *Facts) {
	port := fmt.Sprint("port ", f.Config.SMTPPort)
	var reached, failed, unknown []string
	var problem string
	for _, x := range f.Outgoing {
		switch {
		case x.reached():
			reached = append(reached, x.Name)
		case x.Err != nil || len(x.Talks) == 0:
			unknown = append(unknown, x.Name)
		default:
			failed = append(failed, x.Name)
			problem = x.Talks[len(x.Talks)-1].Problem
		}
	}
	switch {
	case len(reached) == 0 && len(failed) == 0:
		o.add(NotChecked, port, "No mail host of "+joinedOr(unknown, "any domain")+" was found.",
			"See the finding dns.servers, and doctor_mail_domains.")
	case len(reached) == 0:
		o.add(Failure, port, "No mail host of "+strings.Join(failed, ", ")+" can be reached ("+problem+"), so no email "+
			"leaves. Many providers block outgoing connections to port 25.", "Ask the provider of this machine to open "+
			"outgoing port 25, or set transport = \"relay\" and relay_addr.")
	case len(failed) > 0:
		o.add(Warning, port, "The mail hosts of "+strings.Join(failed, ", ")+" cannot be reached ("+problem+"); those of "+
			strings.Join(reached, ", ")+" can.", "Check whether the provider blocks this machine, and run doctor again later.")
	default:
		o.ok(port, "The mail hosts of %s can be reached.", strings.Join(reached, ", "))
	}
}

func joinedOr(all []string, otherwise string) string {
	if len(all) == 0 {
		return otherwise
	}
	return strings.Join(all, ", ")
}
