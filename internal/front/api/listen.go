package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/outbound/eventstream"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/events"
)

// listenScope is the scope that an actor needs to listen to events.
const listenScope = teams.WebhooksRead

// events returns the stream of a team's events. Each server-sent event has the webhook message's ID as its ID, the
// event type as its name, and the payload as its data. The query parameter "events" selects event types. A client that
// reconnects with Last-Event-ID receives all later events. An event named "gap" means that some events may be missing.
func (a *API) events() wire.LiveStream {
	return wire.LiveStream{Path: "/webhooks/listen", Scope: listenScope,
		Prepare: func(c *wire.Call) (func(ctx context.Context) (wire.LiveSource, error), error) {
			names, err := splitList(c.Query(), "events")
			if err != nil {
				return nil, err
			}
			var types []events.Type
			if len(names) > 0 {
				if types, err = webhooks.CheckEvents(names); err != nil {
					return nil, err
				}
			}
			return func(ctx context.Context) (wire.LiveSource, error) {
				tail, err := a.Services.Live.Open(ctx, c.TeamID, types, c.Request.Header.Get("Last-Event-ID"))
				return eventSource{tail}, err
			}, nil
		}}
}

// eventSource writes the messages from an eventstream.Tail as server-sent events.
type eventSource struct{ *eventstream.Tail }

// First returns a comment line, or an event named "gap" if the client may have missed events since Last-Event-ID.
func (s eventSource) First() string {
	if s.Missed() {
		return "event: gap\ndata: {}\n\n"
	}
	return ": watching\n\n"
}

// Next implements wire.LiveSource.
func (s eventSource) Next(ctx context.Context, wait time.Duration) (string, error) {
	all, err := s.Tail.Next(ctx, wait)
	if errors.Is(err, eventstream.ErrClosed) {
		return "", io.EOF
	}
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "id: %s\nevent: %s\ndata: %s\n\n", m.ID, m.Type, strings.ReplaceAll(m.Payload, "\n", " "))
	}
	return b.String(), err
}
