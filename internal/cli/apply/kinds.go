package apply

import (
	"context"
	"iter"

	"github.com/postrider/postrider/client"
)

// kind is a kind of resource.
type kind struct {
	table string // name of the tables in files, such as api_keys
	title string // such as "API key"
	spec  func() spec
	list  func(ctx context.Context, c *client.Client) iter.Seq2[entry, error]
	// remove deletes a resource with an id and a name.
	remove func(ctx context.Context, c *client.Client, id, name string) error
	// secret means that a new resource may have a secret, and that the API does not honor idempotency keys for it.
	secret bool
	// reveal returns the secret of a resource with an id and a name, or "" if it has none. It is nil if the API shows
	// the secret only in the response to the creation.
	reveal func(ctx context.Context, c *client.Client, id, name string) (string, error)
}

// kinds lists the kinds in the order in which resources are created. Resources refer only to those of earlier kinds, or
// segments with a filter to segments without one.
var kinds = []*kind{
	{table: "domains", title: "domain", spec: func() spec { return new(domainSpec) },
		list: listing(func(c *client.Client) pages[client.DomainItem] { return c.Domains.All },
			func(d *client.DomainItem) entry { return entry{id: d.ID, name: d.Name} }),
		remove: removing(func(c *client.Client) deletion[client.Gone] { return c.Domains.Delete })},
	{table: "forwards", title: "forwarding rule", spec: func() spec { return new(forwardSpec) }, secret: true,
		list: listForwards, remove: removeForward, reveal: forwardSecret},
	{table: "contact_properties", title: "contact property", spec: func() spec { return new(propertySpec) },
		list: listing(func(c *client.Client) pages[client.ContactPropertyItem] { return c.ContactProperties.All },
			func(p *client.ContactPropertyItem) entry { return entry{id: p.ID, name: p.Key} }),
		remove: removing(func(c *client.Client) deletion[client.Gone] { return c.ContactProperties.Delete })},
	{table: "topics", title: "topic", spec: func() spec { return new(topicSpec) },
		list: listing(func(c *client.Client) pages[client.TopicItem] { return c.Topics.All },
			func(p *client.TopicItem) entry { return entry{id: p.ID, name: p.Name} }),
		remove: removing(func(c *client.Client) deletion[client.Gone] { return c.Topics.Delete })},
	{table: "segments", title: "segment", spec: func() spec { return new(segmentSpec) },
		list: listing(func(c *client.Client) pages[client.SegmentItem] { return c.Segments.All },
			func(g *client.SegmentItem) entry { return entry{id: g.ID, name: g.Name} }),
		remove: removing(func(c *client.Client) deletion[client.Gone] { return c.Segments.Delete })},
	{table: "templates", title: "template", spec: func() spec { return new(templateSpec) },
		list: listing(func(c *client.Client) pages[client.TemplateItem] { return c.Templates.All },
			func(p *client.TemplateItem) entry { return entry{id: p.ID, name: deref(p.Alias)} }),
		remove: removing(func(c *client.Client) deletion[client.Gone] { return c.Templates.Delete })},
	{table: "webhooks", title: "webhook", spec: func() spec { return new(webhookSpec) }, secret: true,
		list: listing(func(c *client.Client) pages[client.WebhookItem] { return c.Webhooks.All },
			func(w *client.WebhookItem) entry { return entry{id: w.ID, name: w.Endpoint} }),
		remove: removing(func(c *client.Client) deletion[client.Gone] { return c.Webhooks.Delete }),
		reveal: signingSecret},
	{table: "api_keys", title: "API key", spec: func() spec { return new(keySpec) }, secret: true,
		list: listing(func(c *client.Client) pages[client.Key] { return c.APIKeys.All },
			func(k *client.Key) entry { return entry{id: k.ID, name: k.Name, unused: k.LastUsedAt.IsZero()} }),
		remove: removing(func(c *client.Client) deletion[client.Gone] { return c.APIKeys.Delete })},
}

// kindOf returns the kind with a table, or nil.
func kindOf(table string) *kind {
	for _, k := range kinds {
		if k.table == table {
			return k
		}
	}
	return nil
}

type (
	pages[T any]    = func(context.Context, client.Page, ...client.RequestOption) iter.Seq2[T, error]
	deletion[T any] = func(context.Context, string, ...client.RequestOption) (*T, error)
)

// listing returns a function that lists the resources of a kind.
func listing[T any](all func(c *client.Client) pages[T], convert func(*T) entry) func(ctx context.Context,
	c *client.Client) iter.Seq2[entry, error] {
	return func(ctx context.Context, c *client.Client) iter.Seq2[entry, error] {
		return func(yield func(entry, error) bool) {
			for item, err := range all(c)(ctx, client.Page{}) {
				if err != nil {
					yield(entry{}, err)
					return
				}
				if !yield(convert(&item), nil) {
					return
				}
			}
		}
	}
}

// removing returns a function that deletes a resource of a kind. A resource that does not exist is deleted already.
func removing[T any](f func(c *client.Client) deletion[T]) func(ctx context.Context, c *client.Client,
	id, _ string) error {
	return func(ctx context.Context, c *client.Client, id, _ string) error {
		_, err := f(c)(ctx, id)
		if client.IsNotFound(err) {
			err = nil
		}
		return err
	}
}

// deref returns the value of a pointer, or the zero value for nil.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
