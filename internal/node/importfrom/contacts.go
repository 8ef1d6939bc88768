package importfrom

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// maxRows is the maximum number of contacts or suppressions in a transaction. On SQLite, all other writing transactions
// wait for it.
const maxRows = 500

// property is a property of this installation, or the reason why the team cannot have it.
type property struct {
	contacts.Property
	refused bool
}

// readProperties reads the team's properties once.
func (m *importer) readProperties(ctx context.Context) error {
	if m.properties != nil {
		return nil
	}
	all, err := m.Contacts.PropertiesNamed(ctx, m.DB.Reader, m.o.TeamID, nil)
	if err != nil {
		return err
	}
	m.properties = map[string]*property{}
	for _, p := range all {
		m.properties[p.Name] = &property{Property: p}
	}
	return nil
}

// property creates a property, unless the team has it.
func (m *importer) property(ctx context.Context, p *Property) error {
	if err := m.readProperties(ctx); err != nil {
		return err
	}
	if have := m.properties[p.Key]; have != nil && !have.refused {
		note := ""
		outcome := m.found(have.CreatedAt, have.Type == p.Type && have.Fallback == p.Fallback)
		if outcome == Differing {
			note = "it has another type or fallback here, and keeps it; values that its type cannot hold are left out"
		}
		m.add(Properties, p.Key, outcome, note)
		return nil
	}
	return m.createProperty(ctx, p)
}

// createProperty creates a property, and counts it. A property that breaks a rule is remembered as refused.
func (m *importer) createProperty(ctx context.Context, p *Property) error {
	n := contacts.NewProperty{Name: p.Key, Type: p.Type, Fallback: p.Fallback}
	made, err := contacts.Property{ID: id.New(), Name: p.Key, Type: p.Type}, error(nil)
	if m.o.DryRun {
		have := 0
		for _, other := range m.properties {
			if !other.refused {
				have++
			}
		}
		err = cmp.Or(n.Check(), contacts.CheckPropertyCount(have))
	} else {
		made, err = m.Contacts.CreateProperty(ctx, m.o.TeamID, n)
	}
	if fault.Ours(err) {
		return err
	}
	m.properties[p.Key] = &property{made, err != nil}
	if err != nil {
		return m.refuse(Properties, p.Key, err)
	}
	m.add(Properties, p.Key, Created, "")
	return nil
}

// contacts writes contacts, or the members of segments.
func (m *importer) contacts(ctx context.Context, kind Kind, all []Contact) error {
	if err := m.readProperties(ctx); err != nil {
		return err
	}
	if err := m.readTopics(ctx); err != nil {
		return err
	}
	m.nameValues(all)
	for some := range slices.Chunk(all, maxRows) {
		rows := make([]contacts.MergeRow, len(some))
		var used []contacts.Property
		for i := range some {
			var err error
			if rows[i], err = m.row(ctx, &some[i]); err != nil {
				return err
			}
			for name := range some[i].Values {
				if p := m.properties[m.st.Keys[name]]; p != nil && !p.refused &&
					!slices.ContainsFunc(used, func(u contacts.Property) bool { return u.ID == p.ID }) {
					used = append(used, p.Property)
				}
			}
		}
		results, err := m.merge(ctx, used, rows)
		if err != nil {
			return err
		}
		for i, r := range results {
			m.merged(kind, some[i].Address, r)
		}
	}
	return nil
}

// merge writes rows. If segments or topics were deleted here since the rows were made, it writes the rows without them.
func (m *importer) merge(ctx context.Context, used []contacts.Property, rows []contacts.MergeRow) (
	[]contacts.MergeResult, error) {
	if m.o.DryRun {
		return m.Contacts.PlanMerge(ctx, m.o.TeamID, used, rows)
	}
	results, err := m.Contacts.Merge(ctx, m.o.TeamID, used, rows)
	if err == nil || fault.Ours(err) {
		return results, err
	}
	gone, forgetErr := m.forgetDeleted(ctx)
	if forgetErr != nil || len(gone) == 0 {
		return nil, cmp.Or(forgetErr, err)
	}
	for i := range rows {
		rows[i].Segments = slices.DeleteFunc(rows[i].Segments, func(segmentID string) bool {
			if gone[segmentID] {
				m.st.Report.leaveOut(withoutSegment)
			}
			return gone[segmentID]
		})
		rows[i].Topics = slices.DeleteFunc(rows[i].Topics, func(c contacts.MergeChoice) bool {
			if gone[c.TopicID] {
				m.st.Report.leaveOut(withoutTopic)
			}
			return gone[c.TopicID]
		})
	}
	return m.Contacts.Merge(ctx, m.o.TeamID, used, rows)
}

// forgetDeleted forgets the segments and topics that were deleted here since the import began, and returns their ids. A
// segment that got a filter is forgotten, too.
func (m *importer) forgetDeleted(ctx context.Context) (gone map[string]bool, err error) {
	m.segments, m.topics = nil, nil
	if err := m.readSegments(ctx); err != nil {
		return nil, err
	}
	if err := m.readTopics(ctx); err != nil {
		return nil, err
	}
	gone = map[string]bool{}
	for _, x := range []struct {
		kind   Kind
		chosen map[string]string
		have   *index
	}{{Segments, m.st.Segments, m.segments}, {Topics, m.st.Topics, m.topics}} {
		have := map[string]bool{}
		for _, all := range x.have.byKey {
			for _, o := range all {
				have[o.id] = !o.closed
			}
		}
		before := len(x.chosen)
		maps.DeleteFunc(x.chosen, func(_, chosenID string) bool {
			if !have[chosenID] {
				gone[chosenID] = true
			}
			return !have[chosenID]
		})
		if len(x.chosen) < before {
			m.st.Report.note(fmt.Sprintf("Some %s were deleted here during the import, and were not created again. Import again to "+
				"have them.", x.kind))
		}
	}
	return gone, nil
}

// Data that is left out because it refers to objects that this installation does not have.
const (
	withoutSegment = "members of segments that were not imported"
	withoutTopic   = "subscriptions to topics that were not imported"
)

// merged counts a contact.
func (m *importer) merged(kind Kind, address string, r contacts.MergeResult) {
	if r.OptedOut {
		m.st.Report.count(kind).OptedOut++
	}
	switch {
	case r.Err != nil:
		m.add(kind, address, Rejected, r.Err.Error())
	case r.Created:
		m.add(kind, address, Created, "")
	case r.Differs && m.found(r.Since, false) == Differing:
		m.add(kind, address, Differing, "it has another name or other values here, and keeps them")
	case r.Completed:
		m.add(kind, address, Completed, "")
	default:
		m.add(kind, address, m.found(r.Since, true), "")
	}
}

// row translates a contact into one of this installation. Values that their property cannot hold are left out.
func (m *importer) row(ctx context.Context, c *Contact) (contacts.MergeRow, error) {
	row := contacts.MergeRow{Address: c.Address, FirstName: shorten(oneLine(c.FirstName), 255),
		LastName: shorten(oneLine(c.LastName), 255), Unsubscribed: c.Unsubscribed}
	for name, v := range c.Values {
		key, named := m.st.Keys[name]
		if !named {
			m.st.Report.leaveOut("values whose names cannot become keys of properties")
			continue
		}
		p := m.properties[key]
		if p == nil {
			if err := m.createProperty(ctx, &Property{Key: key, Type: v.Type}); err != nil {
				return row, err
			}
			p = m.properties[key]
		}
		as, ok := v.As(p.Type)
		if p.refused || !ok || as.Check(key, p.Type) != nil {
			m.st.Report.leaveOut("values of the property " + key)
			continue
		}
		if row.Values == nil {
			row.Values = map[string]scalar.Value{}
		}
		row.Values[p.ID] = as
	}
	for _, sourceID := range c.Segments {
		if segmentID := m.st.Segments[sourceID]; segmentID != "" {
			row.Segments = append(row.Segments, segmentID)
		} else {
			m.st.Report.leaveOut(withoutSegment)
		}
	}
	for _, t := range c.Topics {
		topicID := m.st.Topics[t.TopicID]
		if topicID == "" {
			m.st.Report.leaveOut(withoutTopic)
			continue
		}
		row.Topics = append(row.Topics, contacts.MergeChoice{
			Choice:    contacts.Choice{TopicID: topicID, Subscription: t.Subscription},
			IsDefault: t.Effective && t.Subscription == m.defaults[topicID],
			Assumed:   t.Effective && t.Subscription == contacts.OptIn})
	}
	return row, nil
}

// suppressed writes suppressions.
func (m *importer) suppressed(ctx context.Context, all []Suppression) error {
	for some := range slices.Chunk(all, maxRows) {
		entries := make([]suppressions.Imported, len(some))
		for i, s := range some {
			entries[i] = suppressions.Imported{Address: s.Address, Origin: s.Origin}
		}
		results, err := m.Suppressions.Import(ctx, m.o.TeamID, entries, m.o.DryRun)
		if err != nil {
			return err
		}
		for i, r := range results {
			switch {
			case r.Err != nil:
				m.add(Suppressions, some[i].Address, Rejected, r.Err.Error())
			case r.Existing.Address == "":
				m.add(Suppressions, some[i].Address, Created, "")
			default:
				m.add(Suppressions, some[i].Address, m.found(r.Existing.CreatedAt, true), "")
			}
		}
	}
	return nil
}
