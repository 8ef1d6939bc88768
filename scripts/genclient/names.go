package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// methodNames lists the names of methods that do not follow from methods and paths by the rules of [methodName].
var methodNames = map[string]string{
	"PUT /domains/{domain_id}/setup": "ChangeSetup",
	"POST /emails":                   "Send",
	"POST /emails/batch":             "SendBatch",
	"POST /emails/checks":            "Check",
	"GET /emails/{email_id}/explain": "Explain",

	"POST /templates/{template}/checks":                             "Check",
	"GET /templates/{template}/versions/{version}/compare/{other}":  "CompareVersions",
	"POST /contacts/{contact}/segments/{segment_id}":                "AddToSegment",
	"DELETE /contacts/{contact}/segments/{segment_id}":              "RemoveFromSegment",
	"GET /contacts/{contact}/export":                                "ExportContact",
	"GET /contacts/imports/{import_id}/events":                      "WatchImport",
	"GET /contacts/imports/{import_id}/failures":                    "ImportFailures",
	"POST /broadcasts/{broadcast_id}/winner":                        "ChooseWinner",
	"POST /broadcasts/{broadcast_id}/test":                          "SendTest",
	"POST /broadcasts/{broadcast_id}/audience":                      "CountAudience",
	"POST /automations/simulate":                                    "SimulateSteps",
	"GET /domains/{domain_id}/claim":                                "GetClaim",
	"POST /domains/{domain_id}/keys/rotate":                         "RotateKeys",
	"GET /domains/{domain_id}/reports":                              "ListReports",
	"GET /domains/{domain_id}/reports/{received_report_id}/file":    "ReportFile",
	"GET /domains/{domain_id}/reports/dmarc":                        "DMARCReports",
	"GET /domains/{domain_id}/reports/tls":                          "TLSReports",
	"POST /domains/{domain_id}/claim/verify":                        "VerifyClaim",
	"POST /domains/{domain_id}/forwards":                            "CreateForward",
	"GET /domains/{domain_id}/forwards":                             "ListForwards",
	"GET /domains/{domain_id}/forwards/{forward_id}":                "GetForward",
	"PATCH /domains/{domain_id}/forwards/{forward_id}":              "UpdateForward",
	"DELETE /domains/{domain_id}/forwards/{forward_id}":             "DeleteForward",
	"POST /domains/{domain_id}/forwards/{forward_id}/confirmation":  "ResendForwardConfirmation",
	"POST /suppressions":                                            "Add",
	"POST /suppressions/batch/add":                                  "AddBatch",
	"POST /suppressions/batch/remove":                               "RemoveBatch",
	"DELETE /suppressions/{suppression}":                            "Remove",
	"POST /webhooks/{webhook_id}/signing-secret/rotate":             "RotateSigningSecret",
	"GET /webhooks/{webhook_id}/events/{webhook_event_id}/attempts": "ListAttempts",
	"DELETE /team/members/{user_id}":                                "RemoveMember",
	"DELETE /team/invitations/{invitation_id}":                      "RevokeInvitation",
	"DELETE /oauth/grants/{oauth_grant_id}":                         "Revoke",
	"GET /automations/{automation_id}/runs/{run_id}":                "GetRun",
	"PATCH /contacts/{contact}/topics":                              "UpdateTopics",

	"POST /domains/{domain_id}/forwards/{forward_id}/signing-secret/rotate": "RotateForwardSecret",
}

// reserved lists the names of the package client that generated types must not have.
var reserved = []string{"Client", "Error", "Field", "Gap", "List", "LiveEvent", "New", "Option", "Page",
	"RequestOption", "Services", "Set", "Null", "Time"}

// initialisms maps parts of names to their form in Go names.
var initialisms = map[string]string{"id": "ID", "ids": "IDs", "url": "URL", "html": "HTML", "tls": "TLS", "ttl": "TTL",
	"smtp": "SMTP", "dns": "DNS", "api": "API", "ip": "IP", "json": "JSON", "oauth": "OAuth", "http": "HTTP", "mx": "MX",
	"dkim": "DKIM", "spf": "SPF", "dmarc": "DMARC", "bimi": "BIMI", "mime": "MIME", "csv": "CSV", "uri": "URI", "ab": "AB", "utc": "UTC",
	"ms": "MS", "arc": "ARC", "mta": "MTA", "sts": "STS", "tld": "TLD", "rfc": "RFC", "esmtp": "ESMTP", "cpu": "CPU", "caa": "CAA"}

// camel returns a name such as email_id, clicked-links or "API keys" in the form of an exported Go name.
func camel(name string) string {
	var b strings.Builder
	for _, part := range strings.FieldsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		if known := initialisms[strings.ToLower(part)]; known != "" {
			b.WriteString(known)
		} else {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}

// lowerCamel returns a name in the form of a Go parameter, such as emailID or apiKeyID.
func lowerCamel(name string) string {
	first, rest, _ := strings.Cut(name, "_")
	return strings.ToLower(first) + camel(rest)
}

// singular returns a plural noun in the singular.
func singular(name string) string {
	switch {
	case strings.HasSuffix(name, "ies"):
		return strings.TrimSuffix(name, "ies") + "y"
	case strings.HasSuffix(name, "s") && !strings.HasSuffix(name, "ss"):
		return strings.TrimSuffix(name, "s")
	}
	return name
}

// basePath returns the literal segments with which all paths of a service begin.
func basePath(list []*endpoint) []string {
	base := literalStart(list[0].Path)
	for _, o := range list[1:] {
		for i, segment := range literalStart(o.Path) {
			if i < len(base) && base[i] != segment {
				base = base[:i]
			}
		}
		base = base[:min(len(base), len(literalStart(o.Path)))]
	}
	return base
}

func literalStart(path string) (all []string) {
	for segment := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if strings.HasPrefix(segment, "{") {
			break
		}
		all = append(all, segment)
	}
	return all
}

// methodName returns the name of an operation's method. The paths of the service begin with base. If isList is true,
// the response is a list.
//
//   - GET: List, Get or the last noun with one of these verbs, as in ListRuns and GetRun
//   - POST: Create, the last segment if it is a verb, as in Publish, or the verb and the noun, as in CancelRun
//   - PUT: Set with the noun
//   - PATCH and DELETE: Update and Delete, with the noun if it is not that of the service
func methodName(o *endpoint, base []string, isList bool, collections []string) string {
	if name := methodNames[o.Method+" "+o.Path]; name != "" {
		return name
	}
	segments := strings.Split(strings.Trim(o.Path, "/"), "/")[len(base):]
	var literals []string
	for _, s := range segments {
		if !strings.HasPrefix(s, "{") {
			literals = append(literals, s)
		}
	}
	endsInParam := len(segments) > 0 && strings.HasPrefix(segments[len(segments)-1], "{")
	noun := ""
	for i, l := range literals {
		if i < len(literals)-1 || endsInParam {
			l = singular(l)
		}
		noun += camel(l)
	}
	switch {
	case o.Method == "GET" && isList:
		return "List" + noun
	case o.Method == "GET" && noun == "Export":
		return "Export"
	case o.Method == "GET":
		return "Get" + noun
	case o.Method == "PUT":
		return "Set" + noun
	case o.Method == "PATCH":
		return "Update" + noun
	case o.Method == "DELETE":
		return "Delete" + noun
	case len(literals) == 0:
		return "Create"
	case slices.Contains(collections, o.Path):
		return "Create" + singular(noun)
	}
	last := len(literals) - 1
	noun = ""
	for _, l := range literals[:last] {
		noun += camel(singular(l))
	}
	return camel(literals[last]) + noun
}

// methodText returns the comment of a method. A description that begins with a verb, such as "Lists the domains of the
// team.", replaces the summary.
func methodText(name, summary, description string) string {
	first, _, _ := strings.Cut(description, " ")
	switch {
	case description == "":
		return sentence(name, summary)
	case len(first) > 2 && strings.HasSuffix(first, "s") && strings.ToLower(first[1:]) == first[1:]:
		return name + " " + strings.ToLower(description[:1]) + description[1:]
	}
	return sentence(name, summary) + " " + description
}

// sentence returns the comment of a method from the summary of its operation, such as "Create adds a domain." from
// "Add a domain".
func sentence(name, summary string) string {
	summary, _ = strings.CutSuffix(summary, " (deprecated)")
	first, rest, _ := strings.Cut(summary, " ")
	verb, comma := strings.CutSuffix(first, ",")
	text := thirdPerson(strings.ToLower(verb))
	if comma {
		text += ","
	}
	words := strings.Fields(rest)
	for i, w := range words {
		bare := strings.TrimSuffix(w, ",")
		before := ""
		if i > 0 {
			before = words[i-1]
		}
		joined := i == 0 && comma || before == "and" || before == "or"
		if joined && slices.Contains([]string{"change", "cancel", "enable", "disable", "schedule", "send"}, bare) {
			words[i] = thirdPerson(bare) + w[len(bare):]
		}
	}
	return fmt.Sprintf("%s %s %s.", name, text, strings.Join(words, " "))
}

// thirdPerson returns a verb in the third person, such as publishes.
func thirdPerson(verb string) string {
	switch {
	case strings.HasSuffix(verb, "sh"), strings.HasSuffix(verb, "ch"), strings.HasSuffix(verb, "ss"):
		return verb + "es"
	case strings.HasSuffix(verb, "y"):
		return strings.TrimSuffix(verb, "y") + "ies"
	}
	return verb + "s"
}
