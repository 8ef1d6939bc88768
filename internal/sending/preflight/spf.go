package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/spf"
)

// Limits from RFC 7208 section 4.6.4 on the DNS queries of one SPF evaluation.
const (
	spfMax     = 10 // terms with look-ups
	spfMaxVoid = 2  // maximum number of look-ups without a result
	spfNear    = 9  // number of terms at which a change to an included record could make the count exceed spfMax
)

// checkSPF checks the SPF record that receivers evaluate, which is that of the return path's host, and all records that
// it includes.
func checkSPF(ctx context.Context, a *lookUps, in *Input) Result {
	const id = "spf"
	host := in.Sender.ReturnPath
	if host == "" {
		return result(id, Info, "The return path is not known before the domain %s is added and may send.", in.From.Domain)
	}
	w := &spfWalk{a: a}
	record, err := w.record(ctx, host)
	switch {
	case err != nil:
		return notLookedUp(id, in, "The SPF record", host)
	case len(record) == 0:
		return result(id, Problem,
			"There is no SPF record at %s, the host of the return path. Install the TXT record that "+
				"is listed with the domain.", host)
	case len(record) > 1:
		return result(id, Problem,
			"There are %d SPF records at %s, and receivers use none of several. Merge them into one.",
			len(record), host).with(record...)
	}
	w.walk(ctx, host, record[0], nil)
	switch {
	case w.broken != "":
		return result(id, Problem, "The SPF record of %s cannot be evaluated: %s. Correct it.", host, w.broken).
			with(w.details...)
	case w.terms > spfMax:
		return result(id, Problem,
			"The SPF record of %s takes more than the %d look-ups that are allowed, so that receivers "+
				"do not evaluate it. Remove includes that you do not need.", host, spfMax).with(w.details...)
	case w.anybody:
		return result(id, Problem, "The SPF record of %s allows anybody to send (+all). End it with ~all or -all.", host).
			with(w.details...)
	case w.void > spfMaxVoid:
		return result(id, Warning,
			"The SPF record of %s names %d hosts that have no address, and receivers stop after %d. "+
				"Remove them.", host, w.void, spfMaxVoid).with(w.details...)
	case w.ptr:
		return result(id, Warning, "The SPF record of %s uses ptr, which receivers may pass over (RFC 7208 section 5.5). "+
			"Name addresses instead.", host).with(w.details...)
	case w.unknown:
		return result(id, Info, "A part of the SPF record of %s could not be looked up. Check again in a moment.", host).
			with(w.details...)
	case w.terms >= spfNear:
		return result(id, Info,
			"The SPF record of %s takes %d of the %d look-ups that are allowed. Add nothing that takes "+
				"more.", host, w.terms, spfMax).with(w.details...)
	}
	return result(id, Pass, "The SPF record of %s takes %d of the %d look-ups that are allowed.", host, w.terms, spfMax).
		with(w.details...)
}

// spfWalk evaluates an SPF record as a receiver does for a sender that no term matches, which needs the most look-ups.
type spfWalk struct {
	a       *lookUps
	terms   int  // terms with look-ups
	void    int  // number of look-ups without a result
	ptr     bool // whether the record contains the term ptr
	anybody bool // whether the record allows everyone to send
	unknown bool // whether a query got no definite answer
	broken  string
	details []string
}

// record returns the SPF records at a domain name (RFC 7208 section 4.5).
func (w *spfWalk) record(ctx context.Context, name string) ([]string, error) {
	all, err := w.a.txt(ctx, name)
	return spf.Find(all), err
}

// done reports whether the result is final, so that no more look-ups are needed.
func (w *spfWalk) done() bool { return w.broken != "" || w.terms > spfMax }

// fail ends the evaluation with the reason why the record cannot be evaluated.
func (w *spfWalk) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = printable(fmt.Sprintf(format, args...))
	}
}

// walk counts the look-ups that the SPF record at a domain name needs. The parameter path contains the names of the
// records that include the current record.
func (w *spfWalk) walk(ctx context.Context, name, record string, path []string) {
	var terms []spf.Term
	for _, text := range strings.Fields(record)[1:] {
		// The whole SPF record must be correct, even after a term that ends the evaluation (RFC 7208 section 4.6).
		t, err := spf.ParseTerm(text)
		if err != nil {
			w.fail("%q in the record at %s %v", text, name, err)
			return
		}
		terms = append(terms, t)
	}
	path = append(path[:len(path):len(path)], name)
	var redirect *spf.Term
	all := false
	for i := range terms {
		t := &terms[i]
		switch {
		case t.Modifier && t.Name == "redirect":
			if redirect != nil {
				w.fail("the record at %s has several redirects", name)
				return
			}
			redirect = t
		case t.Modifier || all: // another modifier, or after "all"
		case t.Name == "all":
			all = true
			w.anybody = w.anybody || t.Qualifier == '+'
		default:
			before := w.anybody
			w.mechanism(ctx, name, t, path)
			if w.done() {
				return
			}
			w.anybody = before || w.anybody && t.Qualifier == '+'
		}
	}
	if redirect != nil && !all {
		w.count(redirect, name)
		w.follow(ctx, redirect, path)
	}
}

// mechanism counts the look-ups that one SPF term needs.
func (w *spfWalk) mechanism(ctx context.Context, name string, t *spf.Term, path []string) {
	if t.Network.IsValid() {
		return
	}
	w.count(t, name)
	switch t.Name {
	case "include":
		w.follow(ctx, t, path)
	case "a", "mx":
		if !w.done() && !t.HasMacro() {
			w.resolve(ctx, t.Name, cleanHost(cmp.Or(t.Domain, name)))
		}
	case "ptr":
		w.ptr = true
	}
}

// count counts a term that needs a look-up.
func (w *spfWalk) count(t *spf.Term, name string) {
	w.terms++
	w.details = append(w.details, name+": "+t.String())
}

// resolve looks up the host of an a or mx term to determine whether it has DNS records.
func (w *spfWalk) resolve(ctx context.Context, mechanism, host string) {
	n := 0
	var err error
	if mechanism == "a" {
		addrs, e := w.a.addrs(ctx, host)
		n, err = len(addrs), e
	} else {
		hosts, e := w.a.mx(ctx, host)
		if n, err = len(hosts), e; n > spfMax {
			w.fail("%s has %d MX records, of which at most %d may be looked up", host, n, spfMax)
		}
	}
	switch {
	case err != nil:
		w.unknown = true
	case n == 0:
		w.void++
	}
}

// follow evaluates the record to which an include or a redirect refers.
func (w *spfWalk) follow(ctx context.Context, t *spf.Term, path []string) {
	if w.done() || t.HasMacro() {
		return // the expansion of macros depends on the sender
	}
	target := t.Domain
	if slices.Contains(path, target) {
		w.fail("the record at %s includes itself", target)
		return
	}
	records, err := w.record(ctx, target)
	switch {
	case err != nil:
		w.unknown = true
	case len(records) == 0:
		w.fail("there is no SPF record at %s, which it includes", target)
	case len(records) > 1:
		w.fail("there are %d SPF records at %s, which it includes", len(records), target)
	default:
		w.walk(ctx, target, records[0], path)
	}
}

// SPFReport describes the evaluation of an SPF record for a sender that no term matches.
type SPFReport struct {
	Host    string
	Records []string // the SPF records at the host; if there are several, receivers use none
	Terms   int      // terms with look-ups, of which 10 are allowed
	Void    int      // look-ups without a result, of which 2 are allowed
	Anybody bool     // whether the record allows everyone to send
	Unknown bool     // whether a look-up got no definite answer
	Broken  string   // why the record cannot be evaluated; "" if it can
}

// CountSPF evaluates the SPF record of a host. It makes at most 40 look-ups.
func CountSPF(ctx context.Context, dns resolve.Resolver, host string) SPFReport {
	w := &spfWalk{a: newLookUps(dns)}
	records, err := w.record(ctx, host)
	if err == nil && len(records) == 1 {
		w.walk(ctx, host, records[0], nil)
	}
	return SPFReport{Host: host, Records: records, Terms: w.terms, Void: w.void, Anybody: w.anybody,
		Unknown: w.unknown || err != nil, Broken: w.broken}
}
