package authres

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/emersion/go-msgauth/authres"

	"github.com/postrider/postrider/internal/mail/arc"
)

// arc verifies the ARC chain of a message (RFC 8617).
func (e *Evaluator) arc(ctx context.Context, h header, raw io.ReaderAt, size int64) arc.Chain {
	if h.problem != "" || h.arcFields == 0 {
		return arc.Chain{State: arc.None}
	}
	return arc.Verify(ctx, e.keyRecord, h.message(raw, size))
}

// arcVerdict returns the verdict on a chain.
func arcVerdict(c *arc.Chain) Verdict {
	v := Verdict{Result: string(c.State), Detail: c.Describe()}
	if n := len(c.Sets); n > 0 {
		v.Domain = hostName(c.Sets[n-1].Sealer)
	}
	return v
}

// override sets the DMARC policy to none if a trusted chain says that DMARC passed before the message was forwarded.
// The chain must be intact, the operator must trust all its sealers, and the first one must have seen DMARC pass for
// the same domain. The result of DMARC stays fail. A single untrusted sealer makes the chain worthless, because each
// sealer can change the message.
func (e *Evaluator) override(r *Results, c *arc.Chain) {
	if r.DMARC.Result != fail || c.State != arc.Pass || len(e.trusted) == 0 {
		return
	}
	for _, s := range c.Sets {
		if !slices.Contains(e.trusted, hostName(s.Sealer)) {
			return
		}
	}
	_, results, err := authres.Parse(c.Sets[0].Results)
	if err != nil {
		return
	}
	for _, x := range results {
		d, ok := x.(*authres.DMARCResult)
		if ok && d.Value == authres.ResultPass && hostName(d.From) == r.DMARC.Domain {
			r.Policy = none
			r.DMARC.Detail = strings.TrimPrefix(r.DMARC.Detail+"; the ARC chain of trusted sealers says that DMARC passed "+
				"before the message was forwarded, so that no policy applies", "; ")
			return
		}
	}
}
