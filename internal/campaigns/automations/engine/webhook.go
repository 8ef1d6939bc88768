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
	"github.com/postrider/postrider/internal/platform/events"
)

// Limits of webhook steps.
const (
	maxURL     = 2000
	maxHeaders = 20
	maxHeader  = 1000      // characters of a value
	maxBody    = 256 << 10 // octets of a body
	maxLevels  = 10        // of lists and objects in a payload
)

// webhook posts to an address.
type webhook struct {
	plain
	url     string
	headers map[string]string
	payload map[string]value // nil for none
}

func readWebhook(o object) (config, error) {
	c := webhook{}
	var err error
	if c.url, err = o.required("url", maxURL); err != nil {
		return nil, err
	}
	if u, err := url.Parse(c.url); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" {
		return nil, invalid(o.at("url"), "must be a URL such as https://example.com/hook.")
	}
	if c.headers, err = readHeaders(o); err != nil {
		return nil, err
	}
	if !o.has("payload") {
		return c, nil
	}
	place := o.at("payload")
	if n := len(o.members["payload"]); n > events.MaxPayload {
		return nil, invalid(place, "has %d octets of JSON; the limit is %d.", n, events.MaxPayload)
	}
	v, err := (&valueReader{}).read(place, o.members["payload"], maxLevels)
	if err != nil {
		return nil, err
	}
	if c.payload = v.object; v.object == nil {
		return nil, invalid(place, "must be an object.")
	}
	return c, nil
}

// ownHeaders are the fields that only the program sets.
var ownHeaders = []string{"host", "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect",
	"user-agent", "webhook-id", "webhook-timestamp", "webhook-signature", "svix-id", "svix-timestamp", "svix-signature"}

func readHeaders(o object) (map[string]string, error) {
	if !o.has("headers") {
		return nil, nil
	}
	h, err := o.object("headers")
	if err != nil {
		return nil, err
	}
	if len(h.members) > maxHeaders {
		return nil, invalid(h.place, "has %d headers; the limit is %d.", len(h.members), maxHeaders)
	}
	all := map[string]string{}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(h.members)) {
		place, low := h.at(name), strings.ToLower(name)
		switch {
		case !isToken(name) || len(name) > MaxKey:
			return nil, invalid(h.place, "has the header %s, which is no name of a header.", quote(name))
		case seen[low]:
			return nil, invalid(place, "is there twice, in other letters. Keep one.")
		case slices.Contains(ownHeaders, low) || strings.HasPrefix(low, "content-") || strings.HasPrefix(low, "proxy-"):
			return nil, invalid(place, "cannot be set: it is a header that is always the server's own.")
		}
		seen[low] = true
		if all[name], err = readLine(place, h.members[name], maxHeader); err != nil {
			return nil, err
		}
		if strings.ContainsFunc(all[name], func(r rune) bool { return r > unicode.MaxASCII }) {
			return nil, invalid(place, "must be a text in ASCII.")
		}
	}
	return all, nil
}

// isToken reports whether a text may name a header (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

func (c webhook) check(g *Graph, place string) error {
	return checkValues(g, place+".payload", c.payload)
}

func (c webhook) names(place string) []Reference {
	all := []Reference{{Field: place + ".url", Kind: NamesURL, ID: c.url}}
	return append(all, propertiesOf(place+".payload", c.payload)...)
}

func (c webhook) refers() []string { return referencesOf(c.payload) }

// callBody is what a webhook step posts.
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

func (c webhook) plan(m *moment) (Action, error) {
	body := callBody{Type: "automation.webhook", CreatedAt: stamp(m.facts.Now), Data: callData{RunID: m.run.ID,
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
		return Action{Failure: &Failure{TooLarge, fmt.Sprintf("The step would post %d octets; the limit is %d. "+
			"Name less in its payload.", len(text), maxBody)}}, nil
	}
	return Action{Effect: &Call{c.url, c.headers, text}, Output: map[string]any{"url": c.url}}, nil
}

// resolveAll is resolve with null in the place of references to values that are not there.
func (m *moment) resolveAll(v value) (any, bool) {
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

func (c webhook) written() any {
	w := map[string]any{"url": c.url}
	if c.headers != nil {
		w["headers"] = c.headers
	}
	if c.payload != nil {
		w["payload"] = writtenValues(c.payload)
	}
	return w
}
