package authres

import (
	"context"

	"github.com/postrider/postrider/internal/lib/registrable"
	"github.com/postrider/postrider/internal/mail/dmarc"
)

// compare logs a line if RFC 7489, which finds organizational domains by the public suffix list, gives another result
// than RFC 9989. Other receivers may still use RFC 7489. compare ignores the policies, because RFC 9989 changed their
// rules.
func (e *Evaluator) compare(ctx context.Context, walker *dmarc.Walker, from string, r *Results, d dmarc.Discovery) {
	at, result, ok := bySuffixes(ctx, walker, from, r, d)
	if !ok || at == d.At && result == r.DMARC.Result {
		return
	}
	if now, leftOut := e.differs.Allow(); now {
		e.Log.Info("DMARC by the public suffix list (RFC 7489) gives another result than the walk through the DNS tree "+
			"(RFC 9989), which counts", "domain", from, "result", r.DMARC.Result, "record", d.At, "old_result", result,
			"old_record", at, "left_out", leftOut)
	}
}

// bySuffixes evaluates a message by RFC 7489. It returns the domain whose record applies, or "", and the result. If ok
// is false, the result is unknown, or no other one is possible.
func bySuffixes(ctx context.Context, walker *dmarc.Walker, from string, r *Results, d dmarc.Discovery) (at, result string,
	ok bool) {
	if r.DMARC.Result == temperror || r.DMARC.Result == permerror {
		return "", "", false
	}
	org := registrable.Domain(from)
	at, record := d.At, d.Record
	// The walk has looked up the organizational domain too, unless a psd tag ended it before.
	if at != from && at != org {
		var err error
		if record, ok, err = walker.Record(ctx, org); err != nil {
			return "", "", false
		} else if at = org; !ok {
			at = ""
		}
	}
	if at == "" || record.Invalid && len(record.RUA) == 0 {
		return at, none, true
	}
	aligned := func(v Verdict, strict bool) bool {
		return v.Result == pass && (v.Domain == from || !strict && v.Domain != "" && registrable.Domain(v.Domain) == org)
	}
	if aligned(r.SPF, record.StrictSPF) {
		return at, pass, true
	}
	for _, v := range r.DKIM {
		if aligned(v, record.StrictDKIM) {
			return at, pass, true
		}
	}
	return at, fail, true
}
