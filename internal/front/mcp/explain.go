package mcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/postrider/postrider/internal/sending/explain"
)

// explainDelivery returns an explanation of an email's delivery, including the replies from the recipients' servers.
func explainDelivery(ctx context.Context, c *caller, in arguments) (result, error) {
	path := "/emails/" + url.PathEscape(in.text("email_id"))
	var email struct {
		From, Subject string
		To, Cc, Bcc   []string
	}
	var answer explain.Answer
	var checks struct {
		Data []struct{ Level, Message string } `json:"data"`
	}
	for _, read := range []struct {
		path string
		out  any
	}{{path, &email}, {path + "/explain", &answer}} {
		if err := c.perform(ctx, operation{method: http.MethodGet, path: read.path}, read.out); err != nil {
			return result{}, err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The email %q from %s to %s.\n%s", email.Subject, email.From,
		strings.Join(append(append(email.To, email.Cc...), email.Bcc...), ", "), answer.Text())
	// The checks need the email's content, which may have been deleted.
	if err := c.perform(ctx, operation{method: http.MethodGet, path: path + "/checks"}, &checks); err == nil {
		b.WriteString("\nFindings of the checks:\n")
		n := 0
		for _, k := range checks.Data {
			if k.Level != "pass" {
				n++
				fmt.Fprintf(&b, "- %s: %s\n", k.Level, k.Message)
			}
		}
		if n == 0 {
			b.WriteString("- none\n")
		}
	}
	text, _ := visible(b.String())
	return result{plain: text, untrusted: true}, nil
}
