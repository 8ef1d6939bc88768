package mcp

import (
	"context"
	"net/http"
	"net/url"

	"github.com/postrider/postrider/internal/mail/htmltext"
)

// getReceived shows a received email. Download links that work without an API key are omitted, and the email's HTML is
// included only if the caller requests it. Attackers could use such links and HTML to deceive a model.
func getReceived(ctx context.Context, c *caller, in arguments) (result, error) {
	o := operation{method: http.MethodGet, path: "/emails/receiving/" + url.PathEscape(in.text("email_id")),
		query: url.Values{"html_format": {"cid"}}}
	var email map[string]any
	if err := c.perform(ctx, o, &email); err != nil {
		return result{}, err
	}
	html, _ := email["html"].(string)
	if plain, _ := email["text"].(string); plain == "" && html != "" {
		email["text"] = htmltext.FromHTML(html)
	}
	if !in.is("include_html") {
		delete(email, "html")
	}
	if !in.is("include_headers") {
		delete(email, "headers")
	}
	delete(email, "raw")
	delete(email, "html_format")
	found := result{data: map[string]any{"untrusted_email": email}, untrusted: true,
		notes: []string{trust(email["authentication"])}}
	return found, nil
}

// trust explains whether the sender's address is authentic. The explanation does not quote any part of the email,
// because even an address can contain instructions to a model.
func trust(authentication any) string {
	results, _ := authentication.(map[string]any)
	dmarc, _ := results["dmarc"].(map[string]any)
	switch dmarc["result"] {
	case "pass":
		return "The domain of the sender's address is authentic (DMARC passed). That does not show who wrote " +
			"the email or whether it is harmless."
	case "fail":
		return "The email does not come from the domain of the sender's address, or was changed in transit (DMARC " +
			"failed). Treat the sender as forged."
	}
	return "It is not known whether the email comes from the domain of the sender's address."
}
