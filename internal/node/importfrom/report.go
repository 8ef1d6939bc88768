package importfrom

import "fmt"

// Outcome is what happened to a record, or would happen in a dry run.
type Outcome string

const (
	Created   Outcome = "created"
	Completed Outcome = "completed" // an existing contact got missing names, values, segments or subscriptions
	Kept      Outcome = "kept"      // the object existed and is the same
	Differing Outcome = "differing" // the object existed with other data, and was left as it was
	Rejected  Outcome = "refused"
)

// Count counts the records of a kind by outcome.
type Count struct {
	Created   int64 `json:"created"`
	Completed int64 `json:"completed"`
	Kept      int64 `json:"kept"`
	Differing int64 `json:"differing"`
	Refused   int64 `json:"refused"`

	// OptedOut counts existing contacts that the import unsubscribed, or opted out of a topic. They are also counted as
	// completed or differing.
	OptedOut int64 `json:"opted_out"`
}

// Total returns the number of records.
func (c *Count) Total() int64 { return c.Created + c.Completed + c.Kept + c.Differing + c.Refused }

func (c *Count) add(o Outcome) {
	switch o {
	case Created:
		c.Created++
	case Completed:
		c.Completed++
	case Kept:
		c.Kept++
	case Differing:
		c.Differing++
	case Rejected:
		c.Refused++
	}
}

// Record is a DNS record that a domain needs.
type Record struct {
	Type     string `json:"type"`
	Name     string `json:"name"`
	Value    string `json:"value"`
	Priority int    `json:"priority,omitempty"`
}

// Item is a line of the report about one object.
type Item struct {
	Kind    Kind     `json:"kind"`
	Name    string   `json:"name"`
	Outcome Outcome  `json:"outcome"`
	Note    string   `json:"note,omitempty"`    // the reason, or what is different
	Records []Record `json:"records,omitempty"` // of a domain
}

// Report says what an import did, or would do in a dry run.
type Report struct {
	Source  string          `json:"source"`
	Team    string          `json:"team_id"`
	DryRun  bool            `json:"dry_run"`
	Counts  map[Kind]*Count `json:"counts"`
	Items   []Item          `json:"items"`
	LeftOut []LeftOut       `json:"left_out"`
	Notes   []string        `json:"notes"`
}

// LeftOut counts data that the import did not take over, or items that the report does not list.
type LeftOut struct {
	What  string `json:"what"`
	Count int64  `json:"count"`
}

// Limits on the items of a report, so that a long import neither fills the memory nor the state file.
const (
	maxItems     = 2000 // items of domains, segments, topics, properties, templates and webhooks
	maxBulkItems = 50   // items of contacts, members and suppressions, for each kind and outcome
	maxShown     = 300  // characters of a name
	maxNote      = 2000 // characters of a note
)

func (r *Report) count(kind Kind) *Count {
	if r.Counts[kind] == nil {
		r.Counts[kind] = &Count{}
	}
	return r.Counts[kind]
}

// add counts a record, and adds an item for it unless the report has too many.
func (r *Report) add(i Item) {
	r.count(i.Kind).add(i.Outcome)
	i.Name, i.Note = shorten(i.Name, maxShown), shorten(i.Note, maxNote)
	most, same := maxItems, 0
	bulk := i.Kind == Contacts || i.Kind == Members || i.Kind == Suppressions
	if bulk {
		if i.Outcome != Differing && i.Outcome != Rejected {
			return
		}
		most = maxBulkItems
	}
	for k := range r.Items {
		if !bulk || r.Items[k].Kind == i.Kind && r.Items[k].Outcome == i.Outcome {
			same++
		}
	}
	if same >= most {
		r.leaveOut(fmt.Sprintf("%s (%s) in this list", i.Kind, i.Outcome))
		return
	}
	r.Items = append(r.Items, i)
}

// leaveOut counts something that was left out.
func (r *Report) leaveOut(what string) {
	for i := range r.LeftOut {
		if r.LeftOut[i].What == what {
			r.LeftOut[i].Count++
			return
		}
	}
	r.LeftOut = append(r.LeftOut, LeftOut{what, 1})
}

// note adds a note once.
func (r *Report) note(text string) {
	text = shorten(text, maxNote)
	for _, n := range r.Notes {
		if n == text {
			return
		}
	}
	if len(r.Notes) < maxItems {
		r.Notes = append(r.Notes, text)
	}
}
