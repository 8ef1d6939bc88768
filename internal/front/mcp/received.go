package mcp

import (
	"context"
	"net/http"
	"net/url"

	"github.com/postrider/postrider/internal/mail/htmltext"
)

// getReceived shows a received email without what only helps to deceive: links that work without a key, and HTML
// unless it is asked for.
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
	found := result{data: map[string]any{"untrusted_email": email}, strangers: true,
		notes: []string{trust(email["authentication"])}}
	return found, nil
}

// trust says what is known of where an email came from. It repeats nothing of the email, whose very address may be a
// sentence to a model.
func trust(authentication any) string {
	results, _ := authentication.(map[string]any)
	dmarc, _ := results["dmarc"].(map[string]any)
	switch dmarc["result"] {
	case "pass":
		return "The domain of the sender's address is authentic (DMARC passed). That says nothing about who wrote " +
			"the email, nor about whether it means well."
	case "fail":
		return "The email does not come from the domain of the sender's address, or was changed on its way (DMARC " +
			"failed): take the sender for forged."
	}
	return "Whether the email comes from the domain of the sender's address is not known."
}
