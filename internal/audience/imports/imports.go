// Package imports imports CSV files into a team's contacts.
//
// # Life of an import
//
// [Service.Store] stores the file while it is uploaded, and [Service.Create] checks the request and inserts a row and a
// job. The job reads the file in batches. Each batch is one transaction, which writes the contacts, the failed rows,
// the counts, and the file position at which to continue. A team's imports run one after another, oldest first. The
// file is deleted after its last row has been read; the import and its failed rows are deleted when their retention
// ends.
//
//	queued ──► in_progress ──► completed
//	   └──────────────┴──────► failed: canceled, or the file or an object that it refers to is gone
//
// # Invariants
//
// Each row is written and counted once, even if the process is killed. A batch is committed only if the stored position
// is still the position at which the batch began. The counts of created, updated, skipped and failed rows add up to the
// number of rows that have been read. If several rows have the same address, all but the first count as updated or
// skipped.
//
// Imports record neither contact.created nor contact.updated events.
//
// # Failures
//
// If the whole file or the request is invalid, Store or Create returns a fault, and nothing is stored. An invalid row
// counts as failed. Up to [MaxKept] invalid rows are stored, with the reason, until the import is deleted. If the
// database or the file store fails, the job is retried without limit, and the import shows a reason to users until it
// continues. An import fails if its file, or a segment, topic or property that it refers to, has been deleted. Contacts
// that a failed import had already written are not removed.
//
// # Out of scope
//
// Package contacts writes the contacts in a batch, and package csvfile parses the file.
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

// Check returns a fault for a string that is not a status.
func (s Status) Check() error {
	switch s {
	case Queued, InProgress, Completed, Failed:
		return nil
	}
	return fault.Invalidf("status",
		"The `status` parameter must be `queued`, `in_progress`, `completed` or `failed`.")
}

// Limits on imports.
const (
	MaxWaiting    = 100     // maximum number of queued and running imports per team
	MaxKept       = 100_000 // maximum number of failed rows that are stored per import
	MaxSegments   = 50      // maximum number of segments that an import adds contacts to
	MaxTopics     = 50      // maximum number of topics that an import changes subscriptions to
	MaxProperties = contacts.MaxProperties

	maxKeptRow   = 8 << 10 // maximum size of a failed row, in bytes; for larger rows, only the reason is stored
	maxFilename  = 255     // maximum length of a file name, in bytes; longer names are truncated
	canceledText = "It was canceled."
	holdReason   = "It cannot go on after line %d, for a reason on our side, and is tried again. If this goes on, " +
		"tell the operator, or cancel it: imports that came later wait for it."
)

// Import is the import of a contact file, with the number of rows by outcome.
type Import struct {
	ID         string
	TeamID     string
	Status     Status
	Filename   string
	Size       int64 // size of the file, in bytes
	Position   int64 // number of bytes that have been imported
	Created    int64 // rows by result
	Updated    int64
	Skipped    int64
	Failed     int64
	Kept       int64  // number of failed rows that Failures returns
	Reason     string // why the import failed, or why it is being retried
	CreatedAt  time.Time
	StartedAt  time.Time // zero while the import is queued
	FinishedAt time.Time // zero until the import has completed or failed

	lines int64 // number of lines in the file before Position
}

// Total returns the number of rows that have been read.
func (i *Import) Total() int64 { return i.Created + i.Updated + i.Skipped + i.Failed }

// Done reports whether the import has ended.
func (i *Import) Done() bool { return !i.FinishedAt.IsZero() }

// fileKey returns the key that an import's file is stored under.
func fileKey(importID string) string { return filePrefix + importID }

// filePrefix is the prefix of the keys that files are stored under.
const filePrefix = "imports/"

// plan is the stored description of how to import a file.
type plan struct {
	Form     csvfile.Form `json:"form"`
	Header   []string     `json:"header"` // the column names
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

// columns maps fields to the indexes of their columns; -1 means that the file has no column for the field.
type columns struct {
	Email        int        `json:"email"`
	FirstName    int        `json:"first_name"`
	LastName     int        `json:"last_name"`
	Unsubscribed int        `json:"unsubscribed"`
	Properties   []property `json:"properties,omitempty"`
}

// property is a column that contains a property's values.
type property struct {
	ID     string      `json:"id"`
	Name   string      `json:"name"`
	Type   scalar.Type `json:"type"`
	Column int         `json:"column"`
	Bool   bool        `json:"bool,omitempty"` // values are booleans in a form that parseBool accepts
}

// bulk returns the settings that apply to all rows.
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
