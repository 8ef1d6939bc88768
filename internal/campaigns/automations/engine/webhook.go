package engine

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/platform/events"
)

// Limits on webhook steps.
const (
	maxURL     = 2000
	maxHeaders = 20
	maxHeader  = 1000      // maximum length of a header value, in characters
	maxBody    = 256 << 10 // maximum size of a request body, in bytes
	maxLevels  = 10        // maximum nesting depth of lists and objects in a payload
)

// webhook is the config of a step that sends a POST request to a URL.
type webhook struct {
	plain
	url     string
	headers map[string]string
	payload map[string]value // nil for none
}

func readWebhook(o jsonread.Object) (config, error) {
	c := webhook{}
	var err error
	if c.url, err = o.Required("url", maxURL); err != nil {
		return nil, err
	}
	if u, err := url.Parse(c.url); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" {
		return nil, jsonread.Invalidf(o.At("url"), "must be a URL such as https://example.com/hook.")
	}
	if c.headers, err = readHeaders(o); err != nil {
		return nil, err
	}
	if !o.Has("payload") {
		return c, nil
	}
	path := o.At("payload")
	if n := len(o.Members["payload"]); n > events.MaxPayload {
		return nil, jsonread.Invalidf(path, "has %d bytes of JSON; the limit is %d.", n, events.MaxPayload)
	}
	v, err := (&valueReader{}).read(path, o.Members["payload"], maxLevels)
	if err != nil {
		return nil, err
	}
	if c.payload = v.object; v.object == nil {
		return nil, jsonread.Invalidf(path, "must be an object.")
	}
	return c, nil
}

// reservedHeaders are the header fields that users may not set, because the program sets them.
var reservedHeaders = []string{"host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
	"expect",
	"user-agent", "webhook-id", "webhook-timestamp", "webhook-signature", "svix-id", "svix-timestamp", "svix-signature"}

func readHeaders(o jsonread.Object) (map[string]string, error) {
	if !o.Has("headers") {
		return nil, nil
	}
	h, err := o.Object("headers")
	if err != nil {
		return nil, err
	}
	if len(h.Members) > maxHeaders {
		return nil, jsonread.Invalidf(h.Path, "has %d headers; the limit is %d.", len(h.Members), maxHeaders)
	}
	all := map[string]string{}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(h.Members)) {
		path, low := h.At(name), strings.ToLower(name)
		switch {
		case !isToken(name) || len(name) > MaxKey:
			return nil, jsonread.Invalidf(h.Path, "has the header %s, which is no name of a header.", jsonread.Quote(name))
		case seen[low]:
			return nil, jsonread.Invalidf(path, "is there twice, in other letters. Keep one.")
		case slices.Contains(reservedHeaders, low) || strings.HasPrefix(low, "content-") || strings.HasPrefix(low, "proxy-"):
			return nil, jsonread.Invalidf(path, "cannot be set: it is a header that is always the server's own.")
		}
		seen[low] = true
		if all[name], err = jsonread.Line(path, h.Members[name], maxHeader); err != nil {
			return nil, err
		}
		if strings.ContainsFunc(all[name], func(r rune) bool { return r > unicode.MaxASCII }) {
			return nil, jsonread.Invalidf(path, "must be a text in ASCII.")
		}
	}
	return all, nil
}

// isToken reports whether s is a valid header field name (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

func (c webhook) check(g *Graph, path string) error {
	return checkValues(g, path+".payload", c.payload)
}

func (c webhook) references(path string) []Reference {
	all := []Reference{{Field: path + ".url", Kind: RefURL, ID: c.url}}
	return append(all, propertyRefs(path+".payload", c.payload)...)
}

func (c webhook) referencedNames() []string { return valueRefs(c.payload) }

// callBody is the body of the request sent by a webhook step.
type callBody struct {
	Type      string   `json:"type"`
	CreatedAt string   `json:"created_at"`
	Data      callData `json:"data"`
}

type callData struct {
	RunID   string       `json:"run_id"`
	Step    string       `json:"step"`
	Contact *callContact `json:"contact"`
	Event   callEvent    `json:"event"`
	Payload any          `json:"payload"`
}

type callContact struct {
	ID           string                    `json:"id"`
	Email        string                    `json:"email"`
	FirstName    string                    `json:"first_name"`
	LastName     string                    `json:"last_name"`
	Unsubscribed bool                      `json:"unsubscribed"`
	Properties   map[string]jsontext.Value `json:"properties"`
}

type callEvent struct {
	Name    string         `json:"name"`
	Payload map[string]any `json:"payload"`
}

func (c webhook) plan(m *stepContext) (Action, error) {
	body := callBody{Type: "automation.webhook", CreatedAt: FormatTime(m.facts.Now), Data: callData{RunID: m.run.ID,
		Step: m.step.Key, Event: callEvent{m.run.Event.Name, m.run.Event.Payload}}}
	if c.payload != nil {
		body.Data.Payload, _ = m.resolveAll(value{object: c.payload})
	}
	if who := m.facts.Contact; who != nil {
		body.Data.Contact = &callContact{who.ID, who.Address, who.FirstName, who.LastName, who.Unsubscribed,
			map[string]jsontext.Value{}}
		for name, v := range who.Properties {
			if v.Type == scalar.Number {
				body.Data.Contact.Properties[name] = jsontext.Value(v.Text)
			} else {
				body.Data.Contact.Properties[name] = encode(v.Text)
			}
		}
	}
	text := encode(body)
	if len(text) > maxBody {
		return Action{Failure: &Failure{WebhookTooLarge, fmt.Sprintf("The step would post %d bytes; the limit is %d. "+
			"Name less in its payload.", len(text), maxBody)}}, nil
	}
	return Action{Effect: &Call{c.url, c.headers, text}, Output: map[string]any{"url": c.url}}, nil
}

// resolveAll is like resolve, but replaces references to values that do not exist with null.
func (m *stepContext) resolveAll(v value) (any, bool) {
	switch {
	case v.list != nil:
		all := []any{}
		for _, item := range v.list {
			x, _ := m.resolveAll(item)
			all = append(all, x)
		}
		return all, true
	case v.object != nil:
		all := map[string]any{}
		for name, item := range v.object {
			all[name], _ = m.resolveAll(item)
		}
		return all, true
	}
	return m.resolve(v)
}

func (c webhook) jsonValue() any {
	w := map[string]any{"url": c.url}
	if c.headers != nil {
		w["headers"] = c.headers
	}
	if c.payload != nil {
		w["payload"] = jsonValues(c.payload)
	}
	return w
}
