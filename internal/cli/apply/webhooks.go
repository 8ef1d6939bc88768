package apply

import (
	"context"
	"net/url"
	"slices"

	"github.com/postrider/postrider/client"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/webhooks"
)

// webhookSpec is a webhook endpoint in a file. Its natural name is its URL.
type webhookSpec struct {
	Events []string `toml:"events"`
	Status *string  `toml:"status"`
}

func (s *webhookSpec) read(name, _ string) (string, []error) {
	var all []error
	u, err := url.Parse(name)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		all = append(all, fault.Invalidf("endpoint", "The name of the table must be a URL that begins with https://."))
	} else {
		name = u.String()
	}
	if s.Events == nil {
		all = append(all, fault.MissingField("events"))
	} else if _, err := webhooks.CheckEvents(s.Events); err != nil {
		all = append(all, err)
	}
	if s.Status != nil && *s.Status != "enabled" && *s.Status != "disabled" {
		all = append(all, fault.Invalidf("status", "The `status` field must be `enabled` or `disabled`."))
	}
	s.Events = sorted(s.Events)
	return name, all
}

// sorted returns the distinct names in order.
func sorted(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }

func (s *webhookSpec) references() []reference { return nil }

func (s *webhookSpec) differences(ctx context.Context, t *team, id string) ([]Difference, error) {
	w, err := t.api.Webhooks.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	var list []Difference
	if have := sorted(w.Events); !slices.Equal(have, s.Events) {
		list = append(list, Difference{Field: "events", From: have, To: s.Events})
	}
	return compare(list, "status", s.Status, w.Status), nil
}

// signingSecret returns the secret with which the requests to a webhook are signed.
func signingSecret(ctx context.Context, c *client.Client, id, _ string) (string, error) {
	w, err := c.Webhooks.Get(ctx, id)
	if err != nil {
		return "", err
	}
	return w.SigningSecret, nil
}

func (s *webhookSpec) create(ctx context.Context, t *team, name string, _ ...client.RequestOption) (made, error) {
	w, err := t.api.Webhooks.Create(ctx, client.CreateWebhook{Endpoint: name, Events: s.Events})
	if err == nil && deref(s.Status) == "disabled" {
		_, err = t.api.Webhooks.Update(ctx, w.ID, client.UpdateWebhook{Status: client.Set("disabled")})
	}
	if err != nil {
		return made{}, err
	}
	return made{id: w.ID, secret: w.SigningSecret}, nil
}

func (s *webhookSpec) update(ctx context.Context, t *team, id, name string, changes []Difference) error {
	in := client.UpdateWebhook{Endpoint: newName(changes, name), Status: set(changes, "status", s.Status)}
	if has(changes, "events") {
		in.Events = client.Set(s.Events)
	}
	_, err := t.api.Webhooks.Update(ctx, id, in)
	return err
}
