package mcp

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// testOperation sends test emails of a broadcast. Like all emails of tools, they need a confirmation code.
const testOperation = "POST /broadcasts/{broadcast_id}/test"

// testParams returns the arguments that describe the test emails of a broadcast, followed by the arguments in more.
func testParams(more ...param) []param {
	contact := contactParam()
	contact.schema.Description = "The id or address of the contact whose values replace the placeholders. " +
		"Default: the fallbacks of the placeholders."
	return slices.Concat([]param{uuid("broadcast_id", "The broadcast's id.").must(),
		addresses("to", "The addresses that get a test email. They need not be contacts.", 1, 10).must(), contact,
		number("variant", "The number of the variant of an A/B test, counted from 0.", 0, 4)}, more)
}

// testBroadcast describes the test emails of a broadcast, and returns a code for confirming them.
func testBroadcast(ctx context.Context, c *caller, in arguments) (result, error) {
	broadcast, covered, err := readTested(ctx, c, in)
	if err != nil {
		return result{}, err
	}
	shown := map[string]any{}
	for _, name := range []string{"name", "from", "subject", "reply_to", "preview_text", "status"} {
		shown[name] = broadcast[name]
	}
	for name, field := range map[string]string{"html_starts": "html", "text_starts": "text"} {
		if body, _ := broadcast[field].(string); body != "" {
			shown[name] = truncate(body, 500)
		}
	}
	var to []string
	if err := json.Unmarshal(in["to"], &to); err != nil {
		return result{}, err
	}
	code, expires, err := c.newCode(testOperation, covered)
	if err != nil {
		return result{}, err
	}
	return result{data: map[string]any{"sent": false, "broadcast": shown, "to": to, codeName: code,
		"expires_at": expires.UTC().Format(time.RFC3339)},
		notes: []string{"Nothing has been sent. Show this to the person you work for. If they agree, call " +
			"confirm_broadcast_test with exactly the same arguments and this confirmation_code, within ten minutes."}}, nil
}

// testedContent are the fields of a broadcast that a confirmation code covers.
var testedContent = []string{"from", "subject", "reply_to", "preview_text", "html", "text", "variants"}

// readTested returns a broadcast, and what a confirmation code covers: the arguments and the broadcast's content. A
// test email thus never has content that nobody has agreed to.
func readTested(ctx context.Context, c *caller, in arguments) (broadcast map[string]any, covered arguments, err error) {
	o := operation{method: http.MethodGet, path: "/broadcasts/" + url.PathEscape(in.text("broadcast_id"))}
	if err := c.perform(ctx, o, &broadcast); err != nil {
		return nil, nil, err
	}
	covered = maps.Clone(in)
	for _, name := range testedContent {
		text, err := encoded(broadcast[name])
		if err != nil {
			return nil, nil, err
		}
		covered["content of the broadcast: "+name] = text
	}
	return broadcast, covered, nil
}

// confirmBroadcastTest sends the test emails that testBroadcast described, unless the broadcast has changed since. The
// API's operation honors no idempotency keys, so each call within the ten minutes sends them.
func confirmBroadcastTest(ctx context.Context, c *caller, in arguments) (result, error) {
	code, in := in.text(codeName), in.without(codeName)
	_, covered, err := readTested(ctx, c, in)
	if err != nil {
		return result{}, err
	}
	if _, err := c.verifyCode(code, testOperation, covered); err != nil {
		return result{}, err
	}
	var sent map[string]any
	err = c.perform(ctx, request(testOperation, in), &sent)
	return result{data: sent}, err
}
