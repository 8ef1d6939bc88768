package importfrom

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/importfrom/fetch"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/suppressions"
	"github.com/postrider/postrider/internal/sending/templates"
)

// Deps are the services to which an import writes.
type Deps struct {
	DB           *db.DB
	Contacts     *contacts.Service
	Domains      *domains.Service
	Templates    *templates.Service
	Suppressions *suppressions.Service
	Webhooks     *webhooks.Service
}

// Options says what is imported, and into which team.
type Options struct {
	TeamID  string
	Source  Source
	Name    string // product and place, such as "resend https://api.resend.com"
	Key     string // credential of the source; only its fingerprint is stored
	DryRun  bool   // write nothing
	State   string // path of the state file; a dry run has none
	Restart bool   // ignore the progress of an earlier import
	// Only lists the imported kinds; nil means all kinds of the source. A kind brings the kinds that say whether its
	// contacts want email: contacts bring suppressions, segments and topics, and members also bring contacts.
	Only []Kind

	// Say is called with a line about the progress, every few seconds; it may be nil.
	Say func(format string, args ...any)
}

const sayEvery = 5 * time.Second

// Run imports the records of a source and returns the report. If the state file has the progress of an import that did
// not end, Run continues that import. The state file is deleted at the end.
//
// If Run fails, the report says what was imported before.
func Run(ctx context.Context, d Deps, o Options) (*Report, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	m := &importer{Deps: d, o: o}
	if o.DryRun {
		m.st = newState(o.Name, o.TeamID, true)
	} else if err := m.open(); err != nil {
		return nil, err
	}
	defer m.file.close()
	if err := m.run(ctx); err != nil {
		return &m.st.Report, err
	}
	return &m.st.Report, m.file.remove()
}

// importer is one call of Run.
type importer struct {
	Deps
	o    Options
	st   *state
	file *stateFile
	// since is set while the first page is written again after a kill: objects that were created since then were
	// created by this import.
	since time.Time
	said  time.Time

	properties map[string]*property
	segments   *index
	topics     *index
	defaults   map[string]contacts.Subscription // of topics of this installation, by id
	templates  *index
	webhooks   *index
}

// open opens the state file, and continues the import in it.
func (m *importer) open() (err error) {
	if m.file, m.st, err = openState(m.o.State, m.o.Restart); err != nil {
		return err
	}
	if m.st != nil && (m.st.Source != m.o.Name || m.st.Team != m.o.TeamID) {
		m.file.close()
		return fmt.Errorf("the state file %s belongs to an import from %s into the team %s that has not ended: continue that "+
			"one, name another file with --state, or forget it with --restart", m.o.State, m.st.Source, m.st.Team)
	}
	if m.st != nil && m.st.Account != fingerprint(m.o.Name, m.o.Key) {
		m.file.close()
		return fmt.Errorf("the import in the state file %s began with another key, which may belong to another account: continue "+
			"it with that key, or begin again with --restart, which overwrites nothing", m.o.State)
	}
	if m.st == nil {
		m.st = newState(m.o.Name, m.o.TeamID, false)
		m.st.Account = fingerprint(m.o.Name, m.o.Key)
	}
	if m.st.Kind != "" && !m.wants(m.st.Kind) {
		m.file.close()
		return fmt.Errorf("the import in the state file %s stopped within the %s, which --only leaves out: continue it without "+
			"--only first, name another file with --state, or forget it with --restart", m.o.State, m.st.Kind)
	}
	if m.st.Kind != "" {
		m.since = time.UnixMicro(m.st.Began)
		m.say("continuing an import that did not end, with %s", m.st.Kind)
	}
	return nil
}

func (m *importer) say(format string, args ...any) {
	if m.o.Say != nil {
		m.o.Say(format, args...)
	}
}

// run imports the kinds that are not imported yet.
func (m *importer) run(ctx context.Context) error {
	have := m.o.Source.Kinds()
	if len(m.st.Segments)+len(m.st.Topics) > 0 {
		if _, err := m.forgetDeleted(ctx); err != nil {
			return err
		}
	}
	for _, kind := range Kinds() {
		if !slices.Contains(have, kind) || !m.wants(kind) || m.st.done(kind) {
			continue
		}
		if err := m.kind(ctx, kind); err != nil {
			return fmt.Errorf("import %s: %w", kind, err)
		}
		m.st.Done, m.st.Kind, m.st.Cursor = append(m.st.Done, kind), "", ""
		if err := m.file.save(m.st); err != nil {
			return err
		}
	}
	return nil
}

// wants reports whether a kind is imported. Without its segments and topics, which an earlier import may have created,
// a contact would lose its unsubscribes from topics.
func (m *importer) wants(kind Kind) bool {
	contacts, members := slices.Contains(m.o.Only, Contacts), slices.Contains(m.o.Only, Members)
	switch {
	case m.o.Only == nil || slices.Contains(m.o.Only, kind):
		return true
	case kind == Segments || kind == Topics || kind == Suppressions:
		return contacts || members
	case kind == Contacts:
		return members
	}
	return false
}

// kind imports the records of one kind, page by page. The next page is fetched while a page is written.
func (m *importer) kind(ctx context.Context, kind Kind) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if m.st.Kind != kind {
		m.st.Kind, m.st.Cursor, m.st.Began = kind, "", m.DB.Now().UnixMicro()
		if err := m.file.save(m.st); err != nil {
			return err
		}
	}
	m.st.Report.count(kind)
	next := m.fetch(ctx, kind, m.st.Cursor)
	cursors := fetch.Cursors{Most: mostPages(kind)}
	if err := cursors.Next(m.st.Cursor); err != nil {
		return err
	}
	for {
		f := <-next
		if f.err != nil {
			return f.err
		}
		p := &f.page
		if p.Next != "" {
			if err := cursors.Next(p.Next); err != nil {
				return err
			}
			next = m.fetch(ctx, kind, p.Next)
		}
		if err := m.page(ctx, kind, p); err != nil {
			return err
		}
		m.since = time.Time{}
		m.st.Cursor, m.st.Began = p.Next, m.DB.Now().UnixMicro()
		if p.Next == "" {
			return nil
		}
		if err := m.file.save(m.st); err != nil {
			return err
		}
		if time.Since(m.said) > sayEvery {
			m.said = time.Now()
			m.say("%s: %d", kind, m.st.Report.count(kind).Total())
		}
	}
}

// mostPages returns the maximum number of pages of a kind, or 0 for kinds with any number of records. The state of the
// import has an entry for each record of all other kinds.
func mostPages(kind Kind) int {
	if kind == Contacts || kind == Members || kind == Suppressions {
		return 0
	}
	return fetch.MaxPages
}

type fetched struct {
	page Page
	err  error
}

// fetch reads a page in the background.
func (m *importer) fetch(ctx context.Context, kind Kind, cursor string) <-chan fetched {
	result := make(chan fetched, 1)
	go func() {
		p, err := m.o.Source.Page(ctx, kind, cursor)
		result <- fetched{p, err}
	}()
	return result
}

// page writes a page.
func (m *importer) page(ctx context.Context, kind Kind, p *Page) error {
	for _, text := range p.Notes {
		m.st.Report.note(text)
	}
	for _, r := range p.Refused {
		m.add(kind, r.Name, Rejected, r.Reason)
	}
	switch kind {
	case Domains:
		return each(ctx, p.Domains, m.domain)
	case Properties:
		return each(ctx, p.Properties, m.property)
	case Segments:
		return each(ctx, p.Segments, m.segment)
	case Topics:
		return each(ctx, p.Topics, m.topic)
	case Templates:
		return each(ctx, p.Templates, m.template)
	case Suppressions:
		return m.suppressed(ctx, p.Suppressions)
	case Contacts, Members:
		if err := m.suppressed(ctx, p.Suppressions); err != nil {
			return err
		}
		return m.contacts(ctx, kind, p.Contacts)
	case Webhooks:
		return each(ctx, p.Webhooks, m.webhook)
	}
	return nil
}

func each[T any](ctx context.Context, all []T, f func(context.Context, *T) error) error {
	for i := range all {
		if err := f(ctx, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

func (m *importer) add(kind Kind, name string, o Outcome, note string) {
	m.st.Report.add(Item{Kind: kind, Name: name, Outcome: o, Note: note})
}

// refuse counts a record that broke a rule. It returns the error if the record is not to blame.
func (m *importer) refuse(kind Kind, name string, err error) error {
	if fault.Ours(err) {
		return err
	}
	m.add(kind, name, Rejected, err.Error())
	return nil
}

// found returns the outcome for an object that existed. An object that this import created before it was killed counts
// as created.
func (m *importer) found(created time.Time, same bool) Outcome {
	switch {
	case !m.since.IsZero() && !created.Before(m.since):
		return Created
	case same:
		return Kept
	}
	return Differing
}
