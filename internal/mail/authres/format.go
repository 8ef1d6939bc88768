package authres

import (
	"strings"

	"github.com/emersion/go-msgauth/authres"
)

// format returns the results as RFC 8601 writes them. Only domain names come from the message, and they have passed
// hostName: nothing here can break out of its place. ARC is left out, because nothing was found out about it.
func format(hostname string, o Origin, r *Results) string {
	property := "smtp.mailfrom"
	if o.MailFrom == "" {
		property = "smtp.helo"
	}
	results := []authres.Result{generic("spf", r.SPF.Result, property, r.SPF.Domain)}
	for _, d := range r.DKIM {
		results = append(results, generic("dkim", d.Result, "header.d", d.Domain))
	}
	dmarc := generic("dmarc", r.DMARC.Result, "header.from", r.DMARC.Domain)
	if r.Policy != "" {
		dmarc.Params["policy.dmarc"] = r.Policy
	}
	// The library ends a result without properties with a space.
	return strings.ReplaceAll(strings.TrimSpace(authres.Format(hostname, append(results, dmarc))), " ;", ";")
}

func generic(method, result, property, domain string) *authres.GenericResult {
	return &authres.GenericResult{Method: method, Value: authres.ResultValue(result), Params: map[string]string{property: domain}}
}
