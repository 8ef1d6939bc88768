// Package imports imports CSV files into a team's contacts.
//
// # Life of an import
//
// [Service.Store] stores the file while it is uploaded, and [Service.Create] checks the request and inserts a row and a
// job. The job reads the file in batches. One transaction writes the contacts of a batch, its failed rows, the counts,
// and the position in the file at which to continue. Imports of a team run one after another, oldest first. After the
// last row the file is deleted; after the retention, the import and its failed rows are deleted.
//
//	queued ──► in_progress ──► completed
//	   └──────────────┴──────► failed: canceled, or the file or an object that it refers to is gone
//
// # Invariants
//
// Each row is written and counted once, even if the process is killed: a batch commits only if the position is still
// where the batch began. Created, updated, skipped and failed add up to the number of rows that were read. If several
// rows have the same address, the later ones count as updated or skipped.
//
// Imports record no webhook events, neither contact.created nor contact.updated.
//
// # Errors
//
// A problem with the whole file, or with the request, is a fault from Store or Create, and nothing is kept. A wrong row
// counts as failed and is kept with the reason until the import is deleted, for up to [MaxKept] rows. If the database
// or the file store fails, the job is retried without limit, and the import shows a reason until it continues. An
// import fails if its file, or a segment, topic or property that it refers to, was deleted; the rows that it wrote
// before stay.
//
// # Limits of this package
//
// It does not store contacts: package contacts writes a batch. It does not parse CSV: package csvfile does.
package imports

import (
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/csvfile"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
)

// Status is the state of an import.
type Status string

const (
	Queued     Status = "queued"
	InProgress Status = "in_progress"
	Completed  Status = "completed"
	Failed     Status = "failed"
)

// Check returns a fault for a text that is not a status.
func (s Status) Check() error {
	switch s {
	case Queued, InProgress, Completed, Failed:
		return nil
	}
	return fault.Invalidf("status",
		"The `status` parameter must be `queued`, `in_progress`, `completed` or `failed`.")
}

// Limits of imports.
const (
	MaxWaiting    = 100     // queued and running imports of a team
	MaxKept       = 100_000 // failed rows of an import that are kept
	MaxSegments   = 50      // segments to which an import adds contacts
	MaxTopics     = 50      // topics to which an import subscribes contacts
	MaxProperties = contacts.MaxProperties

	maxKeptRow   = 8 << 10 // bytes of a failed row; for longer rows only the reason is kept
	maxFilename  = 255     // bytes of a file's name; the rest is cut off
	canceledText = "It was canceled."
	holdReason   = "It cannot go on after line %d, for a reason on our side, and is tried again. If this goes on, " +
		"tell the operator, or cancel it: imports that came later wait for it."
)

// Import is a file of contacts and the results of its rows.
type Import struct {
	ID         string
	TeamID     string
	Status     Status
	Filename   string
	Size       int64 // size of the file, in bytes
	Position   int64 // bytes of the file that are done
	Created    int64 // rows by result
	Updated    int64
	Skipped    int64
	Failed     int64
	Kept       int64  // failed rows that Failures returns
	Reason     string // why the import failed, or why it is being retried
	CreatedAt  time.Time
	StartedAt  time.Time // zero while the import is queued
	FinishedAt time.Time // zero until it has completed or failed

	lines int64 // lines of the file before Position
}

// Total returns the number of rows that were read.
func (i *Import) Total() int64 { return i.Created + i.Updated + i.Skipped + i.Failed }

// Done reports whether the import has ended.
func (i *Import) Done() bool { return !i.FinishedAt.IsZero() }

// fileKey returns the key under which the file of an import is stored.
func fileKey(importID string) string { return filePrefix + importID }

// filePrefix is the prefix of the keys of files.
const filePrefix = "imports/"

// plan is the stored description of what an import does.
type plan struct {
	Form     csvfile.Form `json:"form"`
	Header   []string     `json:"header"` // the names of the columns
	Columns  columns      `json:"columns"`
	Segments []string     `json:"segments,omitempty"`
	Topics   []choice     `json:"topics,omitempty"`
	Skip     bool         `json:"skip,omitempty"`
}

// choice is a subscription to a topic.
type choice struct {
	ID           string                `json:"id"`
	Subscription contacts.Subscription `json:"subscription"`
}

// columns are the indexes of fields in a row; -1 means no column.
type columns struct {
	Email        int        `json:"email"`
	FirstName    int        `json:"first_name"`
	LastName     int        `json:"last_name"`
	Unsubscribed int        `json:"unsubscribed"`
	Properties   []property `json:"properties,omitempty"`
}

// property is a column with the values of a property.
type property struct {
	ID     string      `json:"id"`
	Name   string      `json:"name"`
	Type   scalar.Type `json:"type"`
	Column int         `json:"column"`
	Bool   bool        `json:"bool,omitempty"` // values are true or false, in the forms that parseBool accepts
}

// bulk returns what all rows have in common.
func (p *plan) bulk() *contacts.Bulk {
	b := &contacts.Bulk{Segments: p.Segments, Skip: p.Skip}
	for _, c := range p.Topics {
		b.Topics = append(b.Topics, contacts.Choice{TopicID: c.ID, Subscription: c.Subscription})
	}
	for _, c := range p.Columns.Properties {
		b.Properties = append(b.Properties, contacts.Property{ID: c.ID, Name: c.Name, Type: c.Type})
	}
	return b
}
