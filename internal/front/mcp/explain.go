package mcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// verdicts maps each state of an email to an explanation.
var verdicts = map[string]string{
	"scheduled":        "It is scheduled for later and has not been sent.",
	"queued":           "It waits to be sent.",
	"sent":             "Its delivery has begun, and nothing else has happened yet.",
	"delivered":        "The recipients' servers accepted it. The folder into which they put it is not known.",
	"delivery_delayed": "A server deferred it. Postrider retries automatically.",
	"bounced":          "A server refused it permanently. It is not retried.",
	"complained":       "A recipient marked it as spam. The address is now suppressed.",
	"opened":           "It was delivered and opened, by a person or by a program.",
	"clicked":          "It was delivered and a link was clicked, by a person or by a program.",
	"failed":           "It could not be sent.",
	"suppressed":       "It was not sent, because the address is on the suppression list after a bounce or complaint.",
	"canceled":         "It was canceled before it was sent.",
}

// localVerdicts maps each place at which Postrider itself ends a delivery to an explanation. No server accepted such an
// email, although its state is delivered. The replies are those of package delivery.
var localVerdicts = []struct{ host, reply, verdict string }{
	{"outbox", "250 2.0.0 captured as ", "It was captured in the outbox of `postrider dev`. It was not sent, and no " +
		"server has seen it."},
	{"test addresses", "250 2.0.0 simulated", "It went to test addresses, whose delivery Postrider only simulates. No " +
		"server has seen it."},
}

// verdict explains an email's state.
func verdict(state string, tried *attempts) string {
	switch state {
	case "delivered", "opened", "clicked":
		if said := tried.endedHere(); said != "" {
			return said
		}
	}
	return verdicts[state]
}

// endedHere explains where Postrider ended the deliveries instead of servers. If a server accepted the email for any
// recipient, or no attempt is known, endedHere returns "".
func (t *attempts) endedHere() (said string) {
	for _, a := range t.Data {
		if a.Outcome != "delivered" {
			continue
		}
		found := ""
		for _, of := range localVerdicts {
			if a.Host == of.host && strings.HasPrefix(a.Reply, of.reply) {
				found = of.verdict
			}
		}
		if found == "" {
			return ""
		}
		if !strings.Contains(said, found) {
			said = strings.TrimSpace(said + " " + found)
		}
	}
	return said
}

type timeline struct {
	Data []struct {
		Type      string         `json:"type"`
		Recipient string         `json:"recipient"`
		Data      map[string]any `json:"data"`
		CreatedAt string         `json:"created_at"`
	} `json:"data"`
	More bool `json:"has_more"`
}

type attempts struct {
	Data []attempt `json:"data"`
	More bool      `json:"has_more"`
}

type attempt struct {
	Recipients   []string `json:"recipients"`
	Host         string   `json:"host"`
	TLS          string   `json:"tls"`
	Outcome      string   `json:"outcome"`
	Reply        string   `json:"reply"`
	Conversation string   `json:"conversation"`
	StartedAt    string   `json:"started_at"`
	NextAt       string   `json:"next_at"`
}

// explainDelivery returns an explanation of an email's delivery, including the replies from the recipients' servers.
func explainDelivery(ctx context.Context, c *caller, in arguments) (result, error) {
	path := "/emails/" + url.PathEscape(in.text("email_id"))
	all := url.Values{"limit": {"100"}}
	var email struct {
		From, Subject string
		To, Cc, Bcc   []string
		LastEvent     string `json:"last_event"`
		CreatedAt     string `json:"created_at"`
		ScheduledAt   string `json:"scheduled_at"`
	}
	var happened timeline
	var tried attempts
	var checks struct {
		Data []struct{ Level, Message string } `json:"data"`
	}
	for _, read := range []struct {
		path  string
		query url.Values
		out   any
	}{{path, nil, &email}, {path + "/events", all, &happened}, {path + "/attempts", all, &tried}} {
		o := operation{method: http.MethodGet, path: read.path, query: read.query}
		if err := c.perform(ctx, o, read.out); err != nil {
			return result{}, err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The email %q from %s to %s was accepted at %s.\n", email.Subject, email.From,
		strings.Join(append(append(email.To, email.Cc...), email.Bcc...), ", "), email.CreatedAt)
	fmt.Fprintf(&b, "Its state is %s. %s\n", email.LastEvent, verdict(email.LastEvent, &tried))
	if email.LastEvent == "scheduled" {
		fmt.Fprintf(&b, "It will be sent at %s.\n", email.ScheduledAt)
	}
	happened.writeTo(&b)
	tried.writeTo(&b)
	// The checks need the email's content, which may have been deleted.
	err := c.perform(ctx, operation{method: http.MethodGet, path: path + "/checks"}, &checks)
	if err == nil {
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

// writeTo writes the timeline's events, oldest first.
func (t *timeline) writeTo(b *strings.Builder) {
	b.WriteString("\nEvents, oldest first:\n")
	for _, e := range t.Data {
		fmt.Fprintf(b, "- %s %s", e.CreatedAt, e.Type)
		if e.Recipient != "" {
			fmt.Fprintf(b, " (%s)", e.Recipient)
		}
		if len(e.Data) > 0 {
			if data, err := encoded(e.Data); err == nil {
				fmt.Fprintf(b, ": %s", truncate(string(data), 1000))
			}
		}
		b.WriteString("\n")
	}
	if len(t.Data) == 0 {
		b.WriteString("- none yet\n")
	}
	if t.More {
		b.WriteString("- and more: see list_email_events\n")
	}
}

// writeTo writes the delivery attempts, oldest first, and the SMTP conversation from the last attempt.
func (t *attempts) writeTo(b *strings.Builder) {
	b.WriteString("\nDelivery attempts, oldest first:\n")
	for _, a := range t.Data {
		secured := "without TLS"
		if a.TLS != "" {
			secured = "with " + a.TLS
		}
		fmt.Fprintf(b, "- %s for %s", a.StartedAt, strings.Join(a.Recipients, ", "))
		if a.Host != "" {
			fmt.Fprintf(b, " at %s %s", a.Host, secured)
		}
		fmt.Fprintf(b, ": %s. Reply: %s\n", a.Outcome, truncate(a.Reply, 1000))
		if a.NextAt != "" {
			fmt.Fprintf(b, "  Next attempt: %s.\n", a.NextAt)
		}
	}
	if len(t.Data) == 0 {
		b.WriteString("- none yet\n")
		return
	}
	if t.More {
		b.WriteString("- and more\n")
	}
	fmt.Fprintf(b, "\nThe SMTP conversation of the last attempt above:\n%s\n",
		truncate(t.Data[len(t.Data)-1].Conversation, 4000))
}
