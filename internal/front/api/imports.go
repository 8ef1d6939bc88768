package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"io"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/imports"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/sending/emails"
)

const importsLimit = 10 // items per page if the request has no limit (specification, Limits)

// createImportIn describes the form for creating an import in the OpenAPI document.
type createImportIn struct {
	File       string `json:"file" format:"binary" doc:"A CSV file whose first line names the columns: UTF-8, UTF-16 or Windows-1252; separated by commas, semicolons, tabs or vertical bars."`
	ColumnMap  string `json:"column_map,omitzero" doc:"JSON that maps fields to columns. If absent, the columns email, first_name, last_name and unsubscribed are imported. Missing properties are created; their types are string, number or boolean." example:"{\"email\":\"Email\",\"first_name\":\"First name\",\"properties\":{\"plan\":{\"column\":\"Plan\",\"type\":\"string\"}}}"`
	OnConflict string `json:"on_conflict,omitzero" doc:"The effect on contacts that already exist." enum:"upsert,skip" default:"skip"`
	Segments   string `json:"segments,omitzero" doc:"JSON: the segments that the contacts are added to." example:"[{\"id\":\"78261eea-8f8b-4381-83c6-79fa7120f1cf\"}]"`
	Topics     string `json:"topics,omitzero" doc:"JSON: the topic subscriptions of the contacts." example:"[{\"id\":\"b6d24b8e-af0b-4c3c-be0c-359bbd97381e\",\"subscription\":\"opt_in\"}]"`
}

// columnMap is the JSON in the form field column_map. Unlike other request types, columnMap rejects unknown fields. If
// a misspelled field were ignored, every row would be imported without that column.
type columnMap struct {
	Email        string                                  `json:"email"`
	FirstName    string                                  `json:"first_name"`
	LastName     string                                  `json:"last_name"`
	Unsubscribed string                                  `json:"unsubscribed"`
	Properties   wire.Object[columnOfMap, maxProperties] `json:"properties"`
}

// columnOfMap is a property's column in column_map. In JSON, a columnOfMap is either an object or just the column's
// name.
type columnOfMap struct {
	Column string
	Type   string
}

// UnmarshalJSONFrom reads an object or a column name.
func (c *columnOfMap) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '"' {
		return json.UnmarshalDecode(d, &c.Column)
	}
	var object struct {
		Column string `json:"column"`
		Type   string `json:"type"`
	}
	err := json.UnmarshalDecode(d, &object)
	c.Column, c.Type = object.Column, object.Type
	return err
}

func (*columnOfMap) ElementTypes() []reflect.Type { return nil }

// importOf returns the import that the form fields of an upload describe.
func importOf(f *wire.Form) (n imports.NewImport, err error) {
	n.Filename, n.OnConflict = f.FileName, f.Fields["on_conflict"]
	if f.Fields["column_map"] != "" {
		var in *columnMap // nil for null
		err := f.DecodeField("column_map", `{"email":"Email","first_name":"First name"}`, &in,
			json.RejectUnknownMembers(true))
		if err != nil {
			return n, err
		}
		if in != nil {
			n.Map = &imports.Map{Email: in.Email, FirstName: in.FirstName, LastName: in.LastName,
				Unsubscribed: in.Unsubscribed, Properties: map[string]imports.Column{}}
			for name, c := range in.Properties {
				n.Map.Properties[name] = imports.Column{Name: c.Column, Type: c.Type}
			}
		}
	}
	var segments wire.Array[segmentRef, maxSegments]
	if err := f.DecodeField("segments", `[{"id":"78261eea-8f8b-4381-83c6-79fa7120f1cf"}]`, &segments); err != nil {
		return n, err
	}
	for _, s := range segments {
		n.Segments = append(n.Segments, string(s))
	}
	var topics wire.Array[subscriptionWire, maxTopics]
	err = f.DecodeField("topics", `[{"id":"b6d24b8e-af0b-4c3c-be0c-359bbd97381e","subscription":"opt_in"}]`, &topics)
	n.Topics = choices(topics)
	return n, err
}

type importCounts struct {
	Total   int64 `json:"total" doc:"The number of rows read so far."`
	Created int64 `json:"created"`
	Updated int64 `json:"updated"`
	Skipped int64 `json:"skipped"`
	Failed  int64 `json:"failed"`
}

type contactImportWire struct {
	Object      string       `json:"object"`
	ID          string       `json:"id"`
	Status      string       `json:"status" enum:"queued,in_progress,completed,failed"`
	CreatedAt   wire.DBTime  `json:"created_at"`
	CompletedAt wire.DBTime  `json:"completed_at" doc:"When the import completed or failed; null while it runs."`
	Counts      importCounts `json:"counts"`
	Filename    *string      `json:"filename"`
	Size        int64        `json:"size" doc:"The size of the file in bytes."`
	Processed   int64        `json:"processed" doc:"The number of bytes that have been processed."`
	Error       *string      `json:"error" doc:"Why the import failed, or why it is being retried."`
}

func importToWire(i imports.Import) contactImportWire {
	return contactImportWire{"contact_import", i.ID, string(i.Status), wire.DBTime(i.CreatedAt), wire.DBTime(i.FinishedAt),
		importCounts{i.Total(), i.Created, i.Updated, i.Skipped, i.Failed}, orNull(i.Filename), i.Size, i.Position,
		orNull(i.Reason)}
}

func (a *API) createImport(ctx context.Context, c *wire.Call) (ref, error) {
	s := a.Services.Imports
	key, err := idempotency(c, importOperation, func() string { return "" })
	if err != nil {
		return ref{}, err
	}
	if key.Key == "" { // a request with a key may be answered although the team has no capacity
		if err := s.CheckCapacity(ctx, c.TeamID); err != nil {
			return ref{}, err
		}
	}
	var file *imports.File
	hash := sha256.New()
	form, err := c.ReceiveForm(s.MaxSize(), func(r io.Reader) (err error) {
		file, err = s.Store(ctx, io.TeeReader(r, hash))
		return err
	})
	var n imports.NewImport
	if err == nil {
		n, err = importOf(&form)
	}
	if err != nil {
		s.Discard(ctx, file)
		return ref{}, err
	}
	create := func(ctx context.Context) (any, error) {
		of := file
		file = nil // Create deletes the file if it fails
		i, err := s.Create(ctx, c.TeamID, of, n)
		return ref{"contact_import", i.ID}, err
	}
	if key.Key == "" {
		made, err := create(ctx)
		return made.(ref), err
	}
	key.Hash = digestForm(&form, hash.Sum(nil))
	body, err := a.once(ctx, c, key, create)
	s.Discard(ctx, file)
	var made ref
	if err == nil {
		err = json.Unmarshal(body, &made)
	}
	return made, err
}

// digestForm returns a hash of an uploaded form whose file has the given hash. The order of the fields does not matter.
func digestForm(f *wire.Form, file []byte) string {
	all := []string{f.FileName, string(file)}
	for _, name := range slices.Sorted(maps.Keys(f.Fields)) {
		all = append(all, name, f.Fields[name])
	}
	return emails.DigestTexts(all...)
}

func (a *API) getImport(ctx context.Context, c *wire.Call, _ wire.None) (contactImportWire, error) {
	importID, err := c.ID("import_id")
	if err != nil {
		return contactImportWire{}, err
	}
	i, err := a.Services.Imports.Get(ctx, c.TeamID, importID)
	return importToWire(i), err
}

func (a *API) listImports(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[contactImportWire], error) {
	p, err := c.Page(importsLimit)
	if err != nil {
		return wire.List[contactImportWire]{}, err
	}
	items, more, err := a.Services.Imports.List(ctx, c.TeamID, imports.Status(c.Query().Get("status")), p)
	return wire.ListOf(items, more, importToWire), err
}

func (a *API) cancelImport(ctx context.Context, c *wire.Call, _ wire.None) (contactImportWire, error) {
	importID, err := c.ID("import_id")
	if err != nil {
		return contactImportWire{}, err
	}
	i, err := a.Services.Imports.Cancel(ctx, c.TeamID, importID)
	return importToWire(i), err
}

// watchImport streams the state of an import as server-sent events (HTML Living Standard, section 9.2). An event named
// "progress" reports each change. The stream ends with an event named "done". The data of every event is the import in
// the same JSON form that getImport returns.
func (a *API) watchImport(ctx context.Context, c *wire.Call) (wire.Stream, error) {
	importID, err := c.ID("import_id")
	if err != nil {
		return wire.Stream{}, err
	}
	i, err := a.Services.Imports.Get(ctx, c.TeamID, importID)
	return wire.Stream{MediaType: wire.MediaEvents + "; charset=utf-8", Kind: wire.EventStream,
		Parts: a.progress(ctx, i)}, err
}

// progress yields an event for each new state of an import, with comment lines between events. The sequence ends when
// the import ends or the node stops.
func (a *API) progress(ctx context.Context, i imports.Import) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for shown := ""; ; {
			data, err := wire.Encode(importToWire(i))
			if err != nil {
				yield(nil, err)
				return
			}
			name, part := "progress", ": still there\n\n"
			if i.Done() {
				name = "done"
			}
			if text := string(data); text != shown {
				shown, part = text, "event: "+name+"\ndata: "+text+"\n\n"
			}
			if !yield([]byte(part), nil) || i.Done() {
				return
			}
			i, err = a.Services.Imports.Watch(ctx, i, cmp.Or(a.Heartbeat, wire.DefaultHeartbeat))
			if errors.Is(err, imports.ErrClosed) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// importFailures streams the failed rows of an import as CSV. Each row has the line number, the error, and the columns
// of the imported file.
func (a *API) importFailures(ctx context.Context, c *wire.Call) (wire.Stream, error) {
	importID, err := c.ID("import_id")
	if err != nil {
		return wire.Stream{}, err
	}
	o, err := exports.ParseOptions("", c.Query().Get("formulas"))
	if err != nil {
		return wire.Stream{}, err
	}
	header, rows, err := a.Services.Imports.Failures(ctx, c.TeamID, importID)
	return wire.Stream{MediaType: wire.MediaCSV + "; charset=utf-8; header=present",
		FileName: "import-" + importID + "-failures.csv", Parts: failedRows(header, rows, o)}, err
}

// failedRows yields the failed rows as CSV in chunks of about 64 KB. As in exports, spreadsheet formulas are escaped if
// the options require it.
func failedRows(header []string, rows iter.Seq2[imports.Failure, error], o exports.Options) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		const size = 64 << 10
		var b bytes.Buffer
		out := csv.NewWriter(&b)
		write := func(line, reason string, fields []string) {
			row := []string{line, reason}
			for _, text := range fields {
				row = append(row, o.Text(text))
			}
			for len(row) < 2+len(header) { // a row whose columns are unknown, such as one with an unclosed quote
				row = append(row, "")
			}
			out.Write(row)
		}
		write("line", "reason", header)
		for f, err := range rows {
			if err != nil {
				yield(nil, err)
				return
			}
			write(strconv.FormatInt(f.Line, 10), f.Reason, f.Fields)
			if out.Flush(); b.Len() >= size {
				if !yield(b.Bytes(), nil) {
					return
				}
				b.Reset()
			}
		}
		out.Flush()
		yield(b.Bytes(), nil)
	}
}
