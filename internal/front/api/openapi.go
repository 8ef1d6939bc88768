package api

import (
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/postrider/postrider/internal/front/api/wire"
)

// Document returns the OpenAPI document as JSON. It is the same for all installations, except for the version.
func Document() []byte { return New(Options{}).Document() }

// description returns the API's description for the OpenAPI document.
func description() wire.Description {
	return wire.Description{Title: "Postrider",
		Text: "The API of Postrider, an email platform that you run yourself. Send `Authorization: Bearer re_...` " +
			"with each request.",
		QueryParam: queryParam, RequestHeaders: requestHeaders, OperationText: operationText, GroupText: groupText,
		FieldText: fieldText, ResponseHeaders: responseHeaders}
}

// responseHeaders describes the headers in an operation's responses, except for those that the responses of all
// operations may have.
func responseHeaders(o *wire.Operation, success bool) map[string]*huma.Header {
	switch {
	case hasQuotaHeaders(o):
		return quotaHeaders()
	case success && (o.Method == http.MethodPost && o.Path == "/domains" ||
		o.Method == http.MethodPatch && o.Path == "/domains/{domain_id}"):
		return map[string]*huma.Header{wire.WarningHeader: {Schema: &huma.Schema{Type: huma.TypeString},
			Description: "Why opens and clicks are not tracked although tracking is on, and what to do. Otherwise absent. " +
				"Postrider only."}}
	case success && o.TakesFilters():
		return map[string]*huma.Header{wire.WarningHeader: {Schema: &huma.Schema{Type: huma.TypeString},
			Description: "One line for each unknown query parameter, which was ignored. Otherwise absent. Postrider only."}}
	}
	return nil
}

// requestHeaders describes the request headers that an operation reads.
func requestHeaders(o *wire.Operation) (list []*huma.Param) {
	if o.Method == http.MethodPost && slices.Contains([]string{"/emails", "/emails/batch", "/approvals", "/events/send"},
		o.Path) || creations[o.Method+" "+o.Path] != nil {
		list = append(list, &huma.Param{Name: "Idempotency-Key", In: "header", Schema: &huma.Schema{Type: "string",
			MinLength: new(1), MaxLength: new(256)},
			Description: "A second request with the same key and the same body within 24 hours has no effect and returns " +
				"the first response."})
	}
	if o.Path == "/emails/batch" {
		list = append(list, &huma.Param{Name: "x-batch-validation", In: "header",
			Schema: &huma.Schema{Type: "string", Enum: []any{"strict", "permissive"}, Default: "strict"},
			Description: "strict accepts all emails or none. permissive accepts the valid emails and lists the others in " +
				"`errors`."})
	}
	return list
}
