package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/certs"
)

// tlsaObject describes the TLSA records of a host in JSON. The records are in the form of a zone file.
type tlsaObject struct {
	Host      string     `json:"host"`
	Name      string     `json:"name"`   // of the records
	Source    string     `json:"source"` // files, acme or ""
	InUse     *string    `json:"in_use"`
	Next      *string    `json:"next"`
	Published []string   `json:"published"`
	Zone      string     `json:"zone"` // signed, unsigned or unknown
	Problem   *string    `json:"problem"`
	AskedAt   *time.Time `json:"change_asked_at"`
	UseAfter  *time.Time `json:"use_after"`
}

func tlsaToObject(x *node.MailTLSA) tlsaObject {
	o := tlsaObject{Host: x.Host, Name: "_25._tcp." + x.Host, Source: x.Source, InUse: recordOrNil(x.InUse),
		Next: recordOrNil(x.Next), Published: []string{}, Zone: x.Zone, Problem: nilIfZero(x.Problem),
		AskedAt: moment(x.ChangeAsked), UseAfter: moment(x.UseAfter)}
	for _, r := range x.Published {
		o.Published = append(o.Published, r.String())
	}
	return o
}

func recordOrNil(r dane.Record) *string {
	if len(r.Data) == 0 {
		return nil
	}
	return new(r.String())
}

func showTLSA(ctx context.Context, e *env, n *node.Node, _ []string) error {
	all, err := n.MailTLSA(ctx)
	if err != nil {
		return err
	}
	return e.printTLSA(all)
}

// printTLSA prints the records of hosts. The error is errReported if senders that obey them deliver no mail to a host.
func (e *env) printTLSA(all []node.MailTLSA) error {
	objects, problems := []tlsaObject{}, false
	for i := range all {
		objects = append(objects, tlsaToObject(&all[i]))
		problems = problems || all[i].Problem != ""
	}
	err := e.print(objects, func(w io.Writer) error {
		if len(all) == 0 {
			_, err := fmt.Fprintln(w, "no host that receives mail has a name that other servers can look up")
			return err
		}
		for i := range all {
			if err := writeTLSA(w, &all[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && problems {
		return errReported
	}
	return err
}

// writeTLSA writes the records of a host as text.
func writeTLSA(out io.Writer, x *node.MailTLSA) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, printable(value)) }
	record := func(r dane.Record) string { return "_25._tcp." + x.Host + ". IN TLSA " + r.String() }
	line("host", x.Host)
	switch x.Source {
	case certs.FromFiles:
		line("key in use", record(x.InUse))
		line("next key", "create it yourself, and publish its record before you replace the files")
	case certs.FromACME:
		if len(x.InUse.Data) > 0 {
			line("key in use", record(x.InUse))
		} else {
			line("key in use", "none yet; the certificate is requested")
		}
		if len(x.Next.Data) > 0 {
			line("next key", record(x.Next))
		} else {
			line("next key", "none yet; a running node creates it within a minute")
		}
	default:
		line("key in use", "new after each start; set acme, or tls_cert_file and tls_key_file, before you publish records")
	}
	line("published", publishedText(x.Published))
	switch x.Zone {
	case node.ZoneSigned:
		line("zone", "signed (DNSSEC)")
	case node.ZoneUnsigned:
		line("zone", "not signed (DNSSEC), so senders ignore TLSA records")
	default:
		line("zone", "unknown: the DNS does not answer, or no DNS server of this machine validates signatures "+
			"(set dnssec_resolvers)")
	}
	if !x.ChangeAsked.IsZero() {
		waits := "it waits until the record of the next key is published"
		if !x.UseAfter.IsZero() {
			waits = "the next key is used after " + clock(x.UseAfter)
		}
		line("change", "started at "+clock(x.ChangeAsked)+"; "+waits)
	}
	switch {
	case x.Problem != "":
		line("problem", x.Problem)
	case x.Zone == node.ZoneSigned && len(x.Published) > 0:
		line("result", tlsaResult(x))
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// tlsaResult says how the published records of a host fit its keys, if senders that obey them deliver mail.
func tlsaResult(x *node.MailTLSA) string {
	if !dane.Parse(x.Published).Usable() {
		return "senders ignore the published records, because they support none of them"
	}
	strange := 0
	for _, r := range x.Published {
		if r.String() != x.InUse.String() && r.String() != x.Next.String() {
			strange++
		}
	}
	switch {
	case strange == 0:
		return "the published records match the keys"
	case strange == len(x.Published):
		return "a published record matches the certificate"
	}
	return fmt.Sprintf("a published record matches the key in use; %d of %d records match neither key", strange,
		len(x.Published))
}

func publishedText(all []dane.Record) string {
	if len(all) == 0 {
		return "none"
	}
	texts := make([]string, len(all))
	for i, r := range all {
		texts[i] = r.String()
	}
	return strings.Join(texts, ", ")
}

// defineNextKey adds the flags of the command policy next-key.
func defineNextKey(flags *pflag.FlagSet) action {
	ttl := flags.Duration("ttl", certs.DefaultTTL, "`lifetime` of the host's TLSA records in the DNS, up to 168h")
	cancel := flags.Bool("cancel", false, "end a change that was started; the next key stays the same")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		host := strings.ToLower(strings.TrimSuffix(words[0], "."))
		if *ttl <= 0 {
			return usageError("--ttl must be a lifetime such as 1h")
		}
		if *cancel {
			ctx = recorded(ctx, "policy next-key --cancel")
		}
		if err := n.ChangeMailKey(ctx, host, *ttl, *cancel); err != nil {
			return err
		}
		text := "the next key of " + printable(host) + " is used after its TLSA record was published for " +
			(2 * *ttl).String() + ", or longer if its lifetime in the DNS is longer; `postrider policy tlsa` shows the record"
		if *cancel {
			text = "the change of the key of " + printable(host) + " was cancelled"
		}
		return e.done(struct {
			Host      string `json:"host"`
			Cancelled bool   `json:"cancelled"`
		}{host, *cancel}, text)
	}
}
