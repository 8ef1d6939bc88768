package preflight

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/lib/registrable"
	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// Limits on the DNS look-ups for one email.
const (
	lookUpTime = 5 * time.Second
	lookUpMax  = 40
)

// errUnanswered means that DNS returned no definite answer.
var errUnanswered = errors.New("the DNS did not answer")

// lookUps makes the DNS queries for one email, up to lookUpMax queries.
type lookUps struct {
	dns  resolve.Resolver
	left atomic.Int32
}

func newLookUps(dns resolve.Resolver) *lookUps {
	a := &lookUps{dns: dns}
	a.left.Store(lookUpMax)
	return a
}

// ask makes one DNS query. An answer without records is not an error; ask returns no error other than errUnanswered.
func ask[T any](a *lookUps, look func(resolve.Resolver) ([]T, error)) ([]T, error) {
	if a.dns == nil || a.left.Add(-1) < 0 {
		return nil, errUnanswered
	}
	records, err := look(a.dns)
	switch {
	case errors.Is(err, resolve.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUnanswered, err)
	}
	return records, nil
}

func (a *lookUps) txt(ctx context.Context, name string) ([]string, error) {
	return ask(a, func(r resolve.Resolver) ([]string, error) { return r.TXT(ctx, name) })
}

// dmarc makes the queries of a dmarc.Walker. Unlike txt, it returns the errors of absent records.
func (a *lookUps) dmarc(ctx context.Context, name string) ([]string, error) {
	if a.dns == nil || a.left.Add(-1) < 0 {
		return nil, errUnanswered
	}
	return a.dns.TXT(ctx, name)
}

func (a *lookUps) mx(ctx context.Context, name string) ([]resolve.MX, error) {
	return ask(a, func(r resolve.Resolver) ([]resolve.MX, error) { return r.MX(ctx, name) })
}

func (a *lookUps) addrs(ctx context.Context, name string) ([]netip.Addr, error) {
	return ask(a, func(r resolve.Resolver) ([]netip.Addr, error) { return r.Addrs(ctx, name) })
}

// answers holds the results of the checks that make DNS queries.
type answers struct{ spf, dmarc, alignment Result }

// lookUp runs the checks that make DNS queries, within lookUpTime in total.
func lookUp(ctx context.Context, in *Input) (all answers) {
	if in.Sender.Sandbox {
		operators := func(id string) Result {
			return result(id, Info, "The records of %s are the operator's.", in.From.Domain)
		}
		return answers{operators("spf"), operators("dmarc"), operators("alignment")}
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	a := newLookUps(in.DNS)
	var both sync.WaitGroup
	both.Go(func() { all.spf = checkSPF(ctx, a, in) })
	both.Go(func() {
		walker := dmarc.NewWalker(a.dmarc)
		var found dmarc.Discovery
		all.dmarc, found = policy(ctx, walker, in)
		all.alignment = alignment(ctx, walker, in, found)
	})
	both.Wait()
	return all
}

// notLookedUp returns the result of a check whose records could not be looked up.
func notLookedUp(id string, in *Input, what, name string) Result {
	if in.DNS == nil {
		return result(id, Info, "%s of %s was not looked up, because this installation does not ask the DNS.", what, name)
	}
	return result(id, Info, "%s of %s could not be looked up. Check again in a moment.", what, name)
}

// policy looks up the DMARC record that applies to the domain in From (RFC 9989 section 4.10.1). The discovery is empty
// if the look-up fails.
func policy(ctx context.Context, walker *dmarc.Walker, in *Input) (Result, dmarc.Discovery) {
	const id = "dmarc"
	from := in.From.Domain
	d, err := walker.Discover(ctx, from)
	switch {
	case err != nil:
		return notLookedUp(id, in, "The DMARC record", from), dmarc.Discovery{}
	case len(d.Discarded) > 0:
		several := d.Discarded[0]
		return result(id, Problem, "There are %d DMARC records at _dmarc.%s, and receivers use none of several. Keep one.",
			len(several.Records), several.Domain).with(several.Records...), d
	case d.At == "":
		level := Warning
		if in.Bulk {
			level = Problem // large mailbox providers reject bulk mail without a DMARC record
		}
		org := registrable.Domain(from)
		return result(id, level, "There is no DMARC record for %s, which large mailbox providers require of bulk mail. "+
			"Publish a TXT record at _dmarc.%s, such as `v=DMARC1; p=none; rua=mailto:dmarc@%s`.", from, org, org), d
	case d.Policy == "":
		return result(id, Problem, "The DMARC record at _dmarc.%s has no valid policy, so that receivers ignore it. Write "+
			"`v=DMARC1; p=` and none, quarantine or reject.", d.At).with(d.Text), d
	case d.Requested == dmarc.None:
		return result(id, Info,
			"The DMARC record at _dmarc.%s asks for reports only (p=none). Once they show that your own "+
				"mail passes, ask for quarantine or reject, so that nobody else can send in your name.", d.At).with(d.Text), d
	case d.Record.Testing:
		return result(id, Info, "The DMARC record at _dmarc.%s asks receivers to %s mail that is not yours, but is in test "+
			"mode (t=y), so that they treat such mail more mildly. Remove t=y once your own mail passes.", d.At,
			d.Requested).with(d.Text), d
	}
	return result(id, Pass,
		"The DMARC record at _dmarc.%s asks receivers to %s mail that is not yours.", d.At, d.Requested).with(d.Text), d
}

// alignment checks whether the signature and the return path are aligned with the domain in From (RFC 9989 section
// 4.4).
func alignment(ctx context.Context, walker *dmarc.Walker, in *Input, d dmarc.Discovery) Result {
	const id = "alignment"
	from, s := in.From.Domain, &in.Sender
	if s.SignedBy == "" && s.ReturnPath == "" {
		return result(id, Info, "Once the domain %s is added, its signature and its return path will be aligned with the "+
			"sender.", from)
	}
	signature := aligned(ctx, walker, &d, from, s.SignedBy, d.Record.StrictDKIM)
	path := aligned(ctx, walker, &d, from, s.ReturnPath, d.Record.StrictSPF)
	details := []string{"From: " + from, "signed by: " + s.SignedBy, "return path: " + s.ReturnPath}
	switch {
	case signature && path:
		return result(id, Pass, "The signature and the return path are aligned with the sender, as DMARC demands.").
			with(details...)
	case signature:
		return result(id, Info, "Only the signature is aligned with the sender, because the DMARC record demands the same "+
			"domain in the return path (aspf=s). That suffices; with aspf=r both would count.").with(details...)
	case path:
		return result(id, Warning, "Only the return path is aligned with the sender, and DMARC fails once the email is "+
			"forwarded. Send from the domain that signs, or write adkim=r into the DMARC record.").with(details...)
	}
	return result(id, Problem,
		"Neither the signature nor the return path is aligned with the sender, so that DMARC fails. "+
			"Send from the domain that signs.").with(details...)
}

// aligned compares a domain with that of From. Without a DMARC record or an answer, it supposes a record at the
// registrable domain, which the check of the record advises.
func aligned(ctx context.Context, walker *dmarc.Walker, d *dmarc.Discovery, from, domain string, strict bool) bool {
	if d.At != "" {
		if same, err := walker.Aligned(ctx, from, domain, strict); err == nil {
			return same
		}
	}
	return domain != "" && (domain == from || !strict && registrable.Domain(domain) == registrable.Domain(from))
}
