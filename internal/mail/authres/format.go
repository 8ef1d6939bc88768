package authres

import (
	"strings"

	"github.com/emersion/go-msgauth/authres"
)

// format returns the results as RFC 8601 defines. Only domain names come from the message, and hostName has checked
// them, so they cannot add syntax. ARC is omitted, because it is not evaluated.
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
	// The library puts a space after a result without properties.
	return strings.ReplaceAll(strings.TrimSpace(authres.Format(hostname, append(results, dmarc))), " ;", ";")
}

func generic(method, result, property, domain string) *authres.GenericResult {
	return &authres.GenericResult{Method: method, Value: authres.ResultValue(result),
		Params: map[string]string{property: domain}}
}
