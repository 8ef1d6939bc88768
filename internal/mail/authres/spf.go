package authres

import (
	"context"
	"strings"

	"blitiri.com.ar/go/spf"
)

// spf evaluates SPF for the return path, or for the EHLO name if the return path is null (RFC 7208 section 2.4).
func (e *Evaluator) spf(ctx context.Context, o Origin) Verdict {
	local, domain := "postmaster", o.Hello
	if at := strings.LastIndexByte(o.MailFrom, '@'); at >= 0 {
		local, domain = o.MailFrom[:at], o.MailFrom[at+1:]
	} else if o.MailFrom != "" {
		return Verdict{Result: none, Detail: "the return path has no domain"}
	}
	name := hostName(domain)
	switch {
	case name == "":
		return Verdict{Result: none, Detail: "the sender gives no domain name that could have a record"}
	case !o.Addr.IsValid():
		return Verdict{Result: none, Domain: name, Detail: "the client has no IP address"}
	}
	// The SPF library uses the text after the first @ as the domain, so a local part that contains an @ is replaced.
	// Replacing the local part is safe because only SPF macros use it.
	if strings.Contains(local, "@") {
		local = "postmaster"
	}
	result, err := spf.CheckHostWithSender(o.Addr.Unmap().WithZone("").AsSlice(), o.Hello, local+"@"+name,
		spf.WithContext(ctx), spf.WithResolver(e.dns))
	v := Verdict{Result: string(result), Domain: name}
	if err != nil {
		v.Detail = err.Error()
	}
	if v.Result != pass && v.Result != temperror && ctx.Err() != nil {
		v.Result, v.Detail = temperror, outOfTime
	}
	return v
}

const outOfTime = "there was no time to finish"
