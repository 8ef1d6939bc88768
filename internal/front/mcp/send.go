package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// A confirmation code is signed and contains an id of its own and a digest of the caller, its team and the request.
// Codes are not stored in the database. The email's idempotency key is derived from the code. The stored idempotency
// key therefore shows whether the code has been used.
const (
	codePurpose = "mcp confirmation"
	codeLasts   = 10 * time.Minute
	codeName    = "confirmation_code"
	againName   = "again"
)

// emailParams returns the arguments that describe an email, as in the body of POST /emails, followed by the arguments
// in more.
func emailParams(more ...param) []param {
	return slices.Concat([]param{
		text("from", "The sender: email@example.com or Name <email@example.com>, at a verified domain (see "+
			"list_domains). Required unless the template has one.", 998),
		addresses("to", "The recipients.", 1, 50).must(),
		addresses("cc", "Recipients of copies.", 0, 50),
		addresses("bcc", "Recipients of copies, hidden from the other recipients.", 0, 50),
		addresses("reply_to", "Where replies go.", 0, 50),
		text("subject", "Required unless the template has one.", 998),
		long("html", "The content as HTML."),
		long("text", "The content as plain text. Default: generated from the HTML."),
		nested("template", "A published template, in place of html and text.",
			text("id", "Its id or alias.", 255).must(), values("variables", "Values of its variables.", 50)),
		values("headers", "Header fields to add, by name.", 50),
		list("attachments", "Files, each with content or path.", 20,
			text("filename", "The file's name.", 255), long("content", "The file in base64."),
			text("path", "A public URL from which the file is fetched.", 2000),
			text("content_type", "The media type.", 255), text("content_id", "The id by which the HTML refers to it: cid:...",
				128)),
		list("tags", "Labels for the team's own use.", 50, text("name", "Letters, digits, _ and -.", 256).must(),
			text("value", "Letters, digits, _ and -.", 256).must()),
		text("scheduled_at", `The time to send: ISO 8601, or words such as "in 2 hours". Default: immediately.`, 200),
		uuid("topic_id", "A topic. Only contacts who are subscribed to it receive the email."),
		flag(againName, "Only if a person must approve emails: asks for a further approval of an email that was "+
			"submitted within the last 24 hours. Set it only if the person wants the same email once more."),
	}, more)
}

// sendEmail describes an email and returns a code for confirming it. sendEmail refuses every email that confirmSend
// would refuse, with the same error. If the caller may not send without approval, sendEmail submits the email for
// approval instead.
func sendEmail(ctx context.Context, c *caller, in arguments) (result, error) {
	again := in.is(againName)
	in = in.without(againName)
	if !c.may("POST /emails") {
		key, err := c.approvalKey(in, again)
		if err != nil {
			return result{}, err
		}
		return c.requestApproval(ctx, in, key)
	}
	var checked struct {
		Level string           `json:"level"`
		Data  []map[string]any `json:"data"`
	}
	if err := c.perform(c.s.DryRun(ctx), operation{method: http.MethodPost, path: "/emails/checks", body: in},
		&checked); err != nil {
		return result{}, err
	}
	found := map[string]any{"sent": false, "would_be_sent": summarize(in), "recipients": countRecipients(in),
		"checks": map[string]any{"level": checked.Level, "findings": findings(checked.Data)}}
	if left := c.quota(ctx); left != nil {
		found["quota"] = left
	}
	limits, err := c.limits(ctx)
	if err != nil {
		return result{}, err
	}
	if limits != nil {
		found["limits_of_this_program"] = limits
	}
	code, expires, err := c.newCode("POST /emails", in)
	if err != nil {
		return result{}, err
	}
	found[codeName], found["expires_at"] = code, expires.UTC().Format(time.RFC3339)
	return result{data: found, notes: []string{"Nothing has been sent. Show this to the person you work for. If they " +
		"agree, call confirm_send with exactly the same arguments and this confirmation_code, within ten " +
		"minutes."}}, nil
}

// confirmSend sends an email that sendEmail described. Each confirmation code sends at most one email.
func confirmSend(ctx context.Context, c *caller, in arguments) (result, error) {
	code, again := in.text(codeName), in.is(againName)
	request := in.without(codeName, againName)
	codeID, err := c.verifyCode(code, "POST /emails", request)
	if err != nil {
		return result{}, err
	}
	// The approval requirement may have changed since the code was issued or first used. A code that has already been
	// used returns the result of its first use.
	key := codeKey(code)
	var sent struct {
		ID string `json:"id"`
	}
	if sent.ID, err = c.s.EarlierResult(ctx, c.TeamID, "POST /emails", key); err != nil {
		return result{}, err
	}
	if sent.ID == "" {
		keys := []string{key} // of the approvals to which the code may lead
		if !again {
			shared, err := c.approvalKey(request, false)
			if err != nil {
				return result{}, err
			}
			keys = append(keys, shared)
		}
		asked, err := c.approvalSince(ctx, codeID, keys)
		if err != nil {
			return result{}, err
		}
		if asked == "" && !c.may("POST /emails") {
			asked = keys[len(keys)-1]
		}
		if asked != "" {
			return c.requestApproval(ctx, request, asked)
		}
		if err := c.perform(ctx, operation{method: http.MethodPost, path: "/emails", body: request, key: key},
			&sent); err != nil {
			return result{}, err
		}
	}
	return result{data: map[string]any{"accepted": true, "id": sent.ID}, notes: []string{"The email was accepted. " +
		"Use explain_delivery later to see whether it arrived."}}, nil
}

// approvalSince returns the first of the idempotency keys with which an approval was requested since a code was issued,
// or "" if there is none.
func (c *caller) approvalSince(ctx context.Context, codeID string, keys []string) (string, error) {
	for _, key := range keys {
		asked, err := c.s.EarlierResult(ctx, c.TeamID, "POST /approvals "+c.ID, key)
		if err != nil {
			return "", err
		}
		if asked > codeID { // ids sort by time
			return key, nil
		}
	}
	return "", nil
}

// codeKey returns the idempotency key of the request that a code confirms.
func codeKey(code string) string {
	sum := sha256.Sum256([]byte(code))
	return "mcp-" + hex.EncodeToString(sum[:])
}

// approvalKey returns the idempotency key with which an email is submitted for approval. The same email has the same
// key for 24 hours, because models repeat calls; again asks for a new key.
func (c *caller) approvalKey(request arguments, again bool) (string, error) {
	if again {
		return "mcp-" + rand.Text(), nil
	}
	digest, err := c.digest("POST /approvals", request)
	return "mcp-" + hex.EncodeToString([]byte(digest)), err
}

// requestApproval submits an email for approval. Another call with the same key does not create a second approval.
func (c *caller) requestApproval(ctx context.Context, request arguments, key string) (result, error) {
	var made map[string]any
	o := operation{method: http.MethodPost, path: "/approvals", body: request, key: key}
	if err := c.perform(ctx, o, &made); err != nil {
		return result{}, err
	}
	delete(made, "email") // the model already knows the email, because it wrote the request
	data := map[string]any{"sent": made["status"] == "approved", "approval": made, "would_be_sent": summarize(request),
		"recipients": countRecipients(request)}
	if made["status"] != "pending" { // an earlier call with the same key created the approval
		return result{data: data, notes: []string{"An earlier call requested this approval, and it has been decided: see " +
			"the status of the approval. If the person wants the same email once more, call send_email with again."}}, nil
	}
	return result{data: data,
		notes: []string{"Nothing has been sent. The email waits until a person of the team approves it. Do not " +
			"confirm it. The same call returns the same approval. People decide on the page at approval.url, and " +
			"get_approval shows their decision."}}, nil
}

// summarize returns the parts of an email that a person must see before confirming it.
func summarize(in arguments) map[string]any {
	all := map[string]any{}
	for _, name := range []string{"from", "to", "cc", "bcc", "reply_to", "subject", "headers", "tags", "template",
		"scheduled_at", "topic_id"} {
		var v any
		if json.Unmarshal(in[name], &v) == nil {
			all[name] = v
		}
	}
	var files []struct {
		Name string `json:"filename"`
		Path string `json:"path"`
	}
	if json.Unmarshal(in["attachments"], &files) == nil && len(files) > 0 {
		names := make([]string, len(files))
		for i, f := range files {
			names[i] = f.Name
			if f.Path != "" {
				names[i] += " (" + f.Path + ")"
			}
		}
		all["attachments"] = names
	}
	for name, body := range map[string]string{"html_starts": in.text("html"), "text_starts": in.text("text")} {
		if body != "" {
			all[name] = truncate(body, 500)
		}
	}
	return all
}

// countRecipients returns the number of an email's recipients.
func countRecipients(in arguments) (n int) {
	for _, name := range []string{"to", "cc", "bcc"} {
		var all []string
		if json.Unmarshal(in[name], &all) == nil {
			n += len(all)
		}
	}
	return n
}

// findings returns the results of the checks that did not pass.
func findings(all []map[string]any) []any {
	some := []any{}
	for _, check := range all {
		if check["level"] != "pass" {
			some = append(some, any(check))
		}
	}
	return some
}

// quota returns the team's usage and limits, or nil if the team has no quota or the caller may not read the usage.
func (c *caller) quota(ctx context.Context) map[string]any {
	if !c.may("GET /usage") {
		return nil
	}
	var u struct {
		Emails map[string]map[string]any `json:"emails"`
	}
	if c.perform(ctx, operation{method: http.MethodGet, path: "/usage"}, &u) != nil {
		return nil // the quota is optional information
	}
	all := map[string]any{}
	for period, of := range u.Emails {
		if of["limit"] != nil {
			all[period] = map[string]any{"used": of["used"], "limit": of["limit"], "resets_at": of["resets_at"]}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// limits returns the limits of the caller's grant and how much of them has been used, or nil if the grant has no
// limits.
func (c *caller) limits(ctx context.Context) (map[string]any, error) {
	if c.Kind != teams.GrantActor || !c.Limited {
		return nil, nil
	}
	u, err := c.s.Usage(ctx, c.TeamID, c.ID)
	if err != nil {
		return nil, fmt.Errorf("look up the limits of the grant: %w", err)
	}
	all := map[string]any{}
	if u.Recipients > 0 {
		all["recipients_per_email"] = u.Recipients
	}
	if u.Emails > 0 {
		all["emails_per_day"], all["sent_today"] = u.Emails, u.Sent
	}
	return all, nil
}

// newCode returns a code that the caller can use to confirm a request to an operation.
func (c *caller) newCode(op string, request arguments) (code string, expires time.Time, err error) {
	digest, err := c.digest(op, request)
	if err != nil {
		return "", time.Time{}, err
	}
	now := c.s.Now()
	expires = now.Add(codeLasts).Truncate(time.Second)
	return c.s.Keys.Sign(codePurpose, expires, id.At(now), digest), expires, nil
}

// verifyCode returns the id of a code, which sorts by the time of the code. The result is an error if the code has
// expired or was issued for another caller, operation or request.
func (c *caller) verifyCode(code, op string, request arguments) (codeID string, err error) {
	fields, err := c.s.Keys.Verify(codePurpose, code, c.s.Now())
	switch {
	case errors.Is(err, keyring.ErrExpired):
		return "", fmt.Errorf("the confirmation code has expired, and nothing was sent: call %s again", preparing[op])
	case err != nil || len(fields) != 2:
		return "", fmt.Errorf("the confirmation code is not one that %s returned, and nothing was sent", preparing[op])
	}
	digest, err := c.digest(op, request)
	if err != nil {
		return "", err
	}
	if digest != fields[1] {
		changed := ""
		if op == testOperation {
			changed = ", or the broadcast has changed since"
		}
		return "", fmt.Errorf("the confirmation code is for another request or to another program%[2]s, and nothing was "+
			"sent: confirm with exactly the arguments of %[1]s, or call %[1]s again", preparing[op], changed)
	}
	return fields[0], nil
}

// preparing names the tool that returns codes for an operation.
var preparing = map[string]string{"POST /emails": "send_email", testOperation: "test_broadcast"}

// digest returns a hash of the caller, the operation and the request. The hash does not depend on the order of JSON
// fields or on white space.
func (c *caller) digest(op string, request arguments) (string, error) {
	all := map[string]any{}
	for name, value := range request {
		var v any
		d := json.NewDecoder(bytes.NewReader(value))
		d.UseNumber() // a float64 cannot distinguish some large numbers
		if err := d.Decode(&v); err != nil {
			return "", fmt.Errorf("read the argument %s: %w", name, err)
		}
		all[name] = v
	}
	text, err := encoded([]any{c.TeamID, c.Kind, c.ID, op, all})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return string(sum[:]), nil
}
