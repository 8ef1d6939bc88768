package authres

import (
	"context"
	"net/netip"
	"strings"

	"github.com/postrider/postrider/internal/mail/dmarc"
)

// Facts is what a DMARC report says about a message.
type Facts struct {
	Source   netip.Addr
	From     string // domain of the From field
	MailFrom string // domain of the return path, or ""
	Found    dmarc.Discovery

	DKIM, SPF  bool // whether the method passed for an aligned domain
	Signatures []Signature
	Path       Verdict // of SPF
}

// Signature is the verdict about a signature with the selector of its key.
type Signature struct {
	Verdict
	Selector string
}

// facts returns the facts about a message, or nil if its client has no address or a look-up fails.
func (e *Evaluator) facts(ctx context.Context, walker *dmarc.Walker, from string, h header, o Origin, r *Results,
	d dmarc.Discovery) *Facts {
	if !o.Addr.IsValid() {
		return nil
	}
	f := &Facts{Source: o.Addr.Unmap().WithZone(""), From: from, Found: d, Path: r.SPF}
	if at := strings.LastIndexByte(o.MailFrom, '@'); at >= 0 {
		f.MailFrom = hostName(o.MailFrom[at+1:])
	}
	aligned := func(v Verdict, strict bool) (bool, error) {
		if v.Result != pass {
			return false, nil
		}
		return walker.Aligned(ctx, from, v.Domain, strict)
	}
	var err error
	if f.SPF, err = aligned(r.SPF, d.Record.StrictSPF); err != nil {
		return nil
	}
	for i, v := range r.DKIM {
		if i >= len(h.selectors) {
			break // the remaining verdicts do not belong to a single signature
		}
		f.Signatures = append(f.Signatures, Signature{v, h.selectors[i]})
		ok, err := aligned(v, d.Record.StrictDKIM)
		if err != nil {
			return nil
		}
		f.DKIM = f.DKIM || ok
	}
	return f
}
