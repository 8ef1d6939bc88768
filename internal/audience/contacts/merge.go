package contacts

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// MergeRow is a contact of another installation or product.
type MergeRow struct {
	Address      string
	FirstName    string
	LastName     string
	Unsubscribed bool
	Values       map[string]scalar.Value // by property id
	Segments     []string                // ids
	Topics       []MergeChoice
}

// MergeChoice is a contact's subscription to a topic. If IsDefault is set, the subscription is the topic's default, and
// the contact may have made no choice: it is stored only if it ends the opt-in of an existing contact. If Assumed is
// set, the contact may have made no choice either, and the subscription is stored for new contacts only.
type MergeChoice struct {
	Choice
	IsDefault bool
	Assumed   bool
}

// MergeResult is what happened to a row.
type MergeResult struct {
	Err       error     // the fault of a row that was refused; all other fields are then unset
	Created   bool      // the contact is new
	Completed bool      // the contact existed, and got missing names, values, segments or subscriptions
	Differs   bool      // the contact existed with other names or values, which it keeps
	OptedOut  bool      // the contact existed and is now unsubscribed, or opted out of a topic that it was opted in to
	Since     time.Time // when the contact was created
}

// Merge writes contacts of another installation in one transaction, and returns the results in the order of the rows.
// The parameter properties lists the properties of the rows' values. Rows of the same address count as one contact.
//
// Existing contacts keep their names and values, and get those that they do not have. A contact whose first or last
// name differs from the row's gets no part of the row's name. Existing contacts are added to the rows' segments, and
// get subscriptions to topics about which they have made no choice. If an existing contact and its row differ in
// whether the contact receives email, the contact is unsubscribed or opted out. Like an import, Merge records no
// events. If rows of the same address have different names or values, the first ones count.
//
// Merge returns a fault if a segment or topic does not exist.
func (s *Service) Merge(ctx context.Context, teamID string, properties []Property, rows []MergeRow) (
	results []MergeResult, err error) {
	var m *merger
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		m = newMerger(teamID, properties, rows)
		// The lock is that of WriteBulk, for the same reason.
		if err := tx.Serialize(ctx, "contacts import "+teamID); err != nil {
			return err
		}
		if err := m.checkReferences(ctx, tx.Reader); err != nil {
			return err
		}
		if err := m.create(ctx, tx); err != nil {
			return err
		}
		if err := m.compare(ctx, tx.Reader); err != nil {
			return err
		}
		m.write(ctx, tx)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m.results, nil
}

// PlanMerge returns what Merge would do, and writes nothing. Segments and topics that do not exist count as new.
func (s *Service) PlanMerge(ctx context.Context, teamID string, properties []Property, rows []MergeRow) (
	[]MergeResult, error) {
	m := newMerger(teamID, properties, rows)
	have, err := contactsByAddress(ctx, s.DB.Reader, teamID, m.addresses(), false)
	if err != nil {
		return nil, err
	}
	for i := range m.rows {
		if row := &m.rows[i]; have[row.Address] != nil {
			row.at = have[row.Address]
		} else {
			row.created = true
		}
	}
	if err := m.compare(ctx, s.DB.Reader); err != nil {
		return nil, err
	}
	return m.results, nil
}

// merger merges rows into the contacts of a team.
type merger struct {
	teamID     string
	properties []Property
	rows       []mergeContact // one for each address
	results    []MergeResult  // one for each given row
}

// mergeContact is a row together with the contact that has the row's address.
type mergeContact struct {
	MergeRow
	result   int // index of the result
	at       *Contact
	created  bool
	changed  bool
	segments []string                // ids of the segments to which the contact is added
	topics   []Choice                // the subscriptions that are written
	values   map[string]scalar.Value // by property id; the values that are written
}

// newMerger checks rows, and combines those that have the same address.
func newMerger(teamID string, properties []Property, rows []MergeRow) *merger {
	m := &merger{teamID: teamID, properties: properties, results: make([]MergeResult, len(rows))}
	index := make(map[string]int, len(rows))
	for i, row := range rows {
		if err := row.check(properties); err != nil {
			m.results[i].Err = err
			continue
		}
		k, found := index[row.Address]
		if !found {
			index[row.Address] = len(m.rows)
			m.rows = append(m.rows, mergeContact{MergeRow: row, result: i})
			continue
		}
		first := &m.rows[k]
		completeName(&first.FirstName, &first.LastName, row.FirstName, row.LastName)
		if len(row.Values) > 0 {
			all := maps.Clone(row.Values)
			maps.Copy(all, first.Values)
			first.Values = all
		}
		first.Unsubscribed = first.Unsubscribed || row.Unsubscribed
		first.Segments = slices.Concat(first.Segments, row.Segments)
		first.Topics = slices.Concat(first.Topics, row.Topics)
	}
	for i := range m.rows {
		m.rows[i].normalize()
	}
	return m
}

// check validates a row without using the database, and normalizes its address.
func (row *MergeRow) check(properties []Property) (err error) {
	if row.Address, err = normalizeAddress(row.Address); err != nil {
		return err
	}
	if err := scalar.CheckLine("first_name", row.FirstName, maxName); err != nil {
		return err
	}
	if err := scalar.CheckLine("last_name", row.LastName, maxName); err != nil {
		return err
	}
	for _, p := range properties {
		if v, ok := row.Values[p.ID]; ok {
			if err := v.Check(p.Name, p.Type); err != nil {
				return err
			}
		}
	}
	return nil
}

// normalize removes duplicate segments and topics. If a topic occurs with different subscriptions, the contact is opted
// out.
func (row *mergeContact) normalize() {
	slices.Sort(row.Segments)
	row.Segments = slices.Compact(row.Segments)
	var topics []MergeChoice
	for _, t := range row.Topics {
		i := slices.IndexFunc(topics, func(k MergeChoice) bool { return k.TopicID == t.TopicID })
		switch {
		case i < 0:
			topics = append(topics, t)
		case topics[i].Subscription != t.Subscription:
			topics[i].Subscription, topics[i].IsDefault, topics[i].Assumed = OptOut, false, false
		default:
			topics[i].IsDefault = topics[i].IsDefault && t.IsDefault
			topics[i].Assumed = topics[i].Assumed && t.Assumed
		}
	}
	row.Topics = topics
}

func (m *merger) addresses() (all []string) {
	for i := range m.rows {
		all = append(all, m.rows[i].Address)
	}
	return all
}

// checkReferences returns a fault if a segment or topic of the rows does not exist.
func (m *merger) checkReferences(ctx context.Context, r db.Reader) error {
	var topics []Choice
	for _, topicID := range m.topicIDs() {
		topics = append(topics, Choice{TopicID: topicID})
	}
	if err := checkTopics(ctx, r, m.teamID, topics); err != nil {
		return err
	}
	_, err := segments.CheckManual(ctx, r, m.teamID, m.segmentIDs())
	return err
}

func (m *merger) segmentIDs() (ids []string) {
	for i := range m.rows {
		ids = append(ids, m.rows[i].Segments...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (m *merger) topicIDs() (ids []string) {
	for i := range m.rows {
		for _, t := range m.rows[i].Topics {
			ids = append(ids, t.TopicID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// create locks the existing contacts and inserts the missing ones. It begins again if another transaction creates some
// of them meanwhile.
func (m *merger) create(ctx context.Context, tx *db.Tx) error {
	if len(m.rows) == 0 {
		return nil
	}
	for range createTries {
		have, err := contactsByAddress(ctx, tx.Reader, m.teamID, m.addresses(), !tx.OneWriter())
		if err != nil {
			return err
		}
		var fresh []*Contact
		for i := range m.rows {
			row := &m.rows[i]
			at := have[row.Address]
			switch {
			case at == nil:
				row.at, row.created = row.contact(tx, m.teamID), true
				fresh = append(fresh, row.at)
			case row.at == nil || row.at.ID != at.ID:
				row.at, row.created = at, false
			}
		}
		inserted, err := insertContacts(ctx, tx, m.teamID, fresh)
		if err != nil || inserted == len(fresh) {
			return err
		}
	}
	return errContested()
}

// compare decides what is written for each row, and sets the results.
func (m *merger) compare(ctx context.Context, r db.Reader) error {
	var older []string
	for i := range m.rows {
		if !m.rows[i].created {
			older = append(older, m.rows[i].at.ID)
		}
	}
	if err := m.compareValues(ctx, r, older); err != nil {
		return err
	}
	for _, segmentID := range m.segmentIDs() {
		members, err := segments.MembersAmong(ctx, r, m.teamID, segmentID, older)
		if err != nil {
			return err
		}
		for i := range m.rows {
			row := &m.rows[i]
			if slices.Contains(row.Segments, segmentID) && (row.created || !members[row.at.ID]) {
				row.segments = append(row.segments, segmentID)
			}
		}
	}
	for _, topicID := range m.topicIDs() {
		chosen, err := choicesAmong(ctx, r, m.teamID, topicID, older)
		if err != nil {
			return err
		}
		for i := range m.rows {
			row := &m.rows[i]
			k := slices.IndexFunc(row.Topics, func(t MergeChoice) bool { return t.TopicID == topicID })
			if k >= 0 {
				had := Subscription("")
				if !row.created {
					had = chosen[row.at.ID].subscription
				}
				m.compareTopic(row, had, row.Topics[k])
			}
		}
	}
	for i := range m.rows {
		m.conclude(&m.rows[i])
	}
	return nil
}

// compareTopic decides whether a row's subscription to a topic is written. The parameter had is the contact's choice,
// or "".
func (m *merger) compareTopic(row *mergeContact, had Subscription, t MergeChoice) {
	ends := had == OptIn && t.Subscription == OptOut
	if ends {
		m.results[row.result].OptedOut = true
	}
	if ends || had == "" && !t.IsDefault && (row.created || !t.Assumed) {
		row.topics = append(row.topics, t.Choice)
	}
}

// compareValues decides which names and values the contacts of rows get, and finds the existing contacts that keep
// other ones.
func (m *merger) compareValues(ctx context.Context, r db.Reader, older []string) error {
	ids := map[scalar.Type][]string{}
	for _, p := range m.properties {
		ids[p.Type] = append(ids[p.Type], p.ID)
	}
	texts, err := textsOf(ctx, r, m.teamID, older, ids[scalar.String])
	if err != nil {
		return err
	}
	numbers, err := numbersOf(ctx, r, m.teamID, older, ids[scalar.Number])
	if err != nil {
		return err
	}
	for i := range m.rows {
		row := &m.rows[i]
		if row.created {
			row.values = row.Values
			continue
		}
		row.values = map[string]scalar.Value{}
		differs := row.fillName()
		for propertyID, v := range row.Values {
			key := valueKey{row.at.ID, propertyID}
			had, ok := texts[key]
			if v.Type == scalar.Number {
				n, has := numbers[key]
				had, ok = scalar.OfNumber(n).Text, has
			}
			if !ok {
				row.values[propertyID], row.changed = v, true
			}
			differs = differs || ok && had != v.Text
		}
		m.results[row.result].Differs = differs
	}
	return nil
}

// completeName sets missing parts of a name to those of another name, and reports whether the name changed. Names of
// which one part differs may belong to two people: completeName does not mix them.
func completeName(first, last *string, otherFirst, otherLast string) (changed bool) {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	if differ(*first, otherFirst) || differ(*last, otherLast) {
		return false
	}
	changed = *first == "" && otherFirst != "" || *last == "" && otherLast != ""
	*first, *last = cmp.Or(*first, otherFirst), cmp.Or(*last, otherLast)
	return changed
}

// fillName completes the name of an existing contact. It reports whether the row has another name.
func (row *mergeContact) fillName() (differs bool) {
	if completeName(&row.at.FirstName, &row.at.LastName, row.FirstName, row.LastName) {
		row.changed = true
	}
	return row.FirstName != "" && row.FirstName != row.at.FirstName || row.LastName != "" && row.LastName != row.at.LastName
}

// conclude applies the row's global subscription, and sets the rest of its result.
func (m *merger) conclude(row *mergeContact) {
	result := &m.results[row.result]
	result.Created = row.created
	if row.created {
		return
	}
	result.Since = row.at.CreatedAt
	if row.Unsubscribed && !row.at.Unsubscribed {
		row.at.Unsubscribed, row.at.source = true, ""
		result.OptedOut = true
	}
	row.changed = row.changed || result.OptedOut || len(row.segments) > 0 || len(row.topics) > 0
	result.Completed = row.changed
}

// contact returns the contact that a row creates.
func (row *mergeContact) contact(tx *db.Tx, teamID string) *Contact {
	return &Contact{ID: id.At(tx.Now()), TeamID: teamID, Address: row.Address, FirstName: row.FirstName,
		LastName: row.LastName, Unsubscribed: row.Unsubscribed, CreatedAt: tx.Now(), UpdatedAt: tx.Now()}
}

// write queues everything that compare has decided.
func (m *merger) write(ctx context.Context, tx *db.Tx) {
	var texts valueColumns[string]
	var numbers valueColumns[float64]
	members, choices := map[string][]string{}, map[Choice][]string{}
	var changed []*Contact
	for i := range m.rows {
		row := &m.rows[i]
		for propertyID, v := range row.values {
			key := valueKey{row.at.ID, propertyID}
			if v.Type == scalar.Number {
				numbers.add(key, v.Number())
			} else {
				texts.add(key, v.Text)
			}
		}
		for _, segmentID := range row.segments {
			members[segmentID] = append(members[segmentID], row.at.ID)
		}
		for _, c := range row.topics {
			choices[c] = append(choices[c], row.at.ID)
		}
		if row.changed {
			row.at.UpdatedAt = tx.Now()
			changed = append(changed, row.at)
		}
	}
	upsertTexts(ctx, tx, m.teamID, &texts)
	upsertNumbers(ctx, tx, m.teamID, &numbers)
	for segmentID, ids := range members {
		segments.AddMembers(ctx, tx, m.teamID, segmentID, ids)
	}
	for c, ids := range choices {
		setSubscriptions(ctx, tx, m.teamID, c, ids)
	}
	updateContacts(ctx, tx, m.teamID, changed)
}
