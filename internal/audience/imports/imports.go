// Package imports writes the rows of CSV files into a team's contacts.
//
// # Life of an import
//
// [Service.Store] stores the file while it arrives, and [Service.Create] checks what is asked for and enters a row and
// a job. The job reads the file in batches. One transaction writes the contacts of a batch, the rows of it that failed,
// the counts, and the position in the file from which to go on; then the next batch is read. Imports of a team run one
// after another, oldest first. When the last row is written, the file is deleted, and after the retention the import
// with the rows that failed.
//
//	queued ──► in_progress ──► completed
//	   └──────────────┴──────► failed: canceled, or the file or something that it refers to is gone
//
// # Invariants
//
// A row is written and counted once, whenever the process is killed: a batch moves the position from where it began, or
// it does nothing. Created, updated, skipped and failed add up to the rows that were read. A row whose address was
// created by the same import before counts as updated, or as skipped, like one of any other contact.
//
// No webhook events are recorded, neither contact.created nor contact.updated.
//
// # When it fails
//
// What is wrong with the file as a whole, or with what is asked for, is a fault of Store or Create, and nothing is
// kept. A row that is wrong is counted as failed and kept with the reason, up to [MaxKept] rows, as long as the import. When
// the database or the store of files does not answer, or refuses what it should take, the job is tried again without
// end, and the import has a reason until it goes on. An import fails if its file
// is gone, or a segment, topic or property that it refers to; what it wrote until then stays.
//
// # What it does not do
//
// It does not know how contacts are stored: package contacts writes a batch. It does not read CSV: package csvfile
// does.
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

// Check refuses a text that is no status.
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
	MaxWaiting    = 100     // imports of a team that are queued or in progress
	MaxKept       = 100_000 // failed rows that are kept of an import
	MaxSegments   = 50      // to which an import adds contacts
	MaxTopics     = 50      // to which an import subscribes them
	MaxProperties = contacts.MaxProperties

	maxKeptRow   = 8 << 10 // octets of a failed row; of longer ones only the reason is kept
	maxFilename  = 255     // characters that are kept of a file's name
	canceledText = "It was canceled."
	holdReason   = "It cannot go on after line %d, for a reason on our side, and is tried again. If this goes on, tell the " +
		"operator, or cancel it: imports that came later wait for it."
)

// Import is a file of contacts and what became of its rows.
type Import struct {
	ID         string
	TeamID     string
	Status     Status
	Filename   string
	Size       int64 // of the file, in octets
	Position   int64 // of which this many are done
	Created    int64 // rows, by what became of them
	Updated    int64
	Skipped    int64
	Failed     int64
	Kept       int64  // failed rows that can be read with Failures
	Reason     string // why it failed, or cannot go on and is tried again
	CreatedAt  time.Time
	StartedAt  time.Time // zero while it is queued
	FinishedAt time.Time // zero until it has completed or failed

	lines int64 // of the file before Position
}

// Total is the number of rows that were read.
func (i *Import) Total() int64 { return i.Created + i.Updated + i.Skipped + i.Failed }

// Done reports whether the import has ended.
func (i *Import) Done() bool { return !i.FinishedAt.IsZero() }

// fileKey is where the file is stored.
func fileKey(importID string) string { return filePrefix + importID }

// filePrefix is the prefix of the keys of files.
const filePrefix = "imports/"

// plan is what an import does, as its row has it.
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

// columns are the places of fields in a row; -1 is none.
type columns struct {
	Email        int        `json:"email"`
	FirstName    int        `json:"first_name"`
	LastName     int        `json:"last_name"`
	Unsubscribed int        `json:"unsubscribed"`
	Properties   []property `json:"properties,omitempty"`
}

// property is a column whose values are those of a property.
type property struct {
	ID     string      `json:"id"`
	Name   string      `json:"name"`
	Type   scalar.Type `json:"type"`
	Column int         `json:"column"`
	Bool   bool        `json:"bool,omitempty"` // true or false, in the forms that parseBool knows
}

// bulk is what the rows have in common.
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
