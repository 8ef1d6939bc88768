package authres

import (
	"strings"

	"github.com/emersion/go-msgauth/authres"
)

// format returns the results in the syntax of an Authentication-Results field (RFC 8601). The only values from the
// message are domain names that hostName has checked, so a message cannot inject syntax. ARC is omitted if the message
// has no chain.
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
	// The library writes an unwanted space after a result without properties.
	results = append(results, dmarc)
	if r.ARC.Result != none {
		results = append(results, generic("arc", r.ARC.Result, "header.d", r.ARC.Domain))
	}
	return strings.ReplaceAll(strings.TrimSpace(authres.Format(hostname, results)), " ;", ";")
}

func generic(method, result, property, domain string) *authres.GenericResult {
	return &authres.GenericResult{Method: method, Value: authres.ResultValue(result),
		Params: map[string]string{property: domain}}
}
