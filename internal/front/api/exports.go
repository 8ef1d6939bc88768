package api

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// exportQuery lists the query parameters that all exports accept.
var exportQuery = slices.Clip([]string{"format", "formulas"})

// exportHandler returns a handler that streams the export returned by f. In the OpenAPI document, the type Row
// describes one line of NDJSON.
func exportHandler[Row any](f func(ctx context.Context, c *wire.Call) (*exports.Export, error)) wire.Handler {
	return wire.Streaming[Row](func(ctx context.Context, c *wire.Call) (wire.Stream, error) {
		o, err := exports.ParseOptions(c.Query().Get("format"), c.Query().Get("formulas"))
		if err != nil {
			return wire.Stream{}, err
		}
		e, err := f(ctx, c)
		if err != nil {
			return wire.Stream{}, err
		}
		return wire.Stream{MediaType: o.Format.MediaType(), FileName: e.Name + "." + string(o.Format),
			Parts: e.Batches(ctx, o)}, nil
	}, wire.MediaCSV, wire.MediaNDJSON)
}

func (a *API) exportContacts(ctx context.Context, c *wire.Call) (*exports.Export, error) {
	return a.Services.Exports.Contacts(ctx, c.TeamID, strings.ToLower(c.Query().Get("segment_id")))
}

func (a *API) exportEmails(_ context.Context, c *wire.Call) (*exports.Export, error) {
	f, err := emailFilter(c.Query())
	return a.Services.Exports.Emails(c.Actor, f), err
}

func (a *API) exportSuppressions(_ context.Context, c *wire.Call) (*exports.Export, error) {
	return a.Services.Exports.Suppressions(c.TeamID, suppressions.Origin(c.Query().Get("origin"))), nil
}

func (a *API) exportLogs(_ context.Context, c *wire.Call) (*exports.Export, error) {
	f, err := logFilter(c.Query())
	return a.Services.Exports.Logs(c.TeamID, f), err
}

// readSpan reads the query parameters from and to. If a parameter is missing, the corresponding time stays zero, which
// means no bound.
func readSpan(q url.Values, from, to *time.Time) (err error) {
	for name, dst := range map[string]*time.Time{"from": from, "to": to} {
		if q.Get(name) == "" {
			continue
		}
		if *dst, err = parseDate(name, q.Get(name), time.UTC); err != nil {
			return err
		}
		if dst.IsZero() {
			*dst = dst.Add(time.Microsecond)
		}
	}
	if !from.IsZero() && !to.IsZero() && to.Before(*from) {
		return fault.Invalidf("from", "The `from` parameter must not be after `to`.")
	}
	return nil
}
