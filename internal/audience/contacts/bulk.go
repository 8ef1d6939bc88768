package contacts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Bulk contains the settings that apply to all contacts in an import.
type Bulk struct {
	Properties []Property // properties of the values in BulkRow.Values, in the same order
	Segments   []string   // ids of the segments that each contact is added to
	Topics     []Choice   // the subscriptions that each contact gets
	Skip       bool       // leave existing contacts unchanged, including their segments and topics
}

// BulkRow is one row of an import: the new values for one contact. If a field is empty, the contact keeps its previous
// value.
type BulkRow struct {
	Address      string
	FirstName    string
	LastName     string
	Unsubscribed *bool
	Values       []string // in the order of Bulk.Properties
}

// BulkCount counts rows by outcome.
type BulkCount struct{ Created, Updated, Skipped int }

// BulkProperty is a property that an import needs.
type BulkProperty struct {
	Name string
	Type scalar.Type
}

// Check validates a row without using the database, and normalizes it for WriteBulk.
func (b *Bulk) Check(row *BulkRow) (err error) {
	if row.Address, err = normalizeAddress(row.Address); err != nil {
		return err
	}
	if err := scalar.CheckLine("first_name", row.FirstName, maxName); err != nil {
		return err
	}
	if err := scalar.CheckLine("last_name", row.LastName, maxName); err != nil {
		return err
	}
	for i, p := range b.Properties {
		text := row.Values[i]
		if text == "" {
			continue
		}
		value := scalar.OfText(text)
		if p.Type == scalar.Number {
			n, ok := parseNumber(text)
			if !ok {
				return fault.Invalidf(p.Name, "The `%s` field must be a number, as 12 or 12.5, not %.50q.", p.Name, text)
			}
			value = scalar.OfNumber(n)
		}
		if err := value.Check(p.Name, p.Type); err != nil {
			return err
		}
		row.Values[i] = value.Text
	}
	return nil
}

// parseNumber parses a decimal number; thousands separators are not allowed.
func parseNumber(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	if strings.Trim(text, "+-.0123456789eE") != "" {
		return 0, false // ParseFloat also accepts hexadecimal numbers, underscores, Inf and NaN
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

// PrepareBulk checks, in the caller's transaction, that an import's segments and topics exist, and creates the
// properties that the team does not have yet. PrepareBulk returns Invalid faults for the fields `segments`, `topics`
// and `column_map`.
func (s *Service) PrepareBulk(ctx context.Context, tx *db.Tx, teamID string, b *Bulk, properties []BulkProperty) error {
	c := Change{Topics: b.Topics}
	if err := c.check(); err != nil {
		return err
	}
	if err := checkTopics(ctx, tx.Reader, teamID, b.Topics); err != nil {
		return err
	}
	var err error
	if b.Segments, err = segments.CheckManual(ctx, tx.Reader, teamID, b.Segments); err != nil {
		return err
	}
	b.Properties, err = ensureProperties(ctx, tx, teamID, properties)
	return err
}

// ensureProperties returns the properties that an import needs, and creates missing properties.
func ensureProperties(ctx context.Context, tx *db.Tx, teamID string, want []BulkProperty) ([]Property, error) {
	if len(want) == 0 {
		return nil, nil
	}
	names := make([]string, len(want))
	for i, w := range want {
		p := Property{Name: w.Name, Type: w.Type}
		if err := p.check(); err != nil {
			return nil, fault.Invalidf("column_map", "The `column_map` field names the property %.60q. %s", w.Name, err)
		}
		names[i] = w.Name
	}
	if err := tx.Serialize(ctx, "properties of "+teamID); err != nil { // as CreateProperty does
		return nil, err
	}
	have, err := propertiesNamed(ctx, tx.Reader, teamID, names)
	if err != nil {
		return nil, err
	}
	count, err := countProperties(ctx, tx.Reader, teamID)
	if err != nil {
		return nil, fmt.Errorf("count properties: %w", err)
	}
	all := make([]Property, len(want))
	for i, w := range want {
		at := slices.IndexFunc(have, func(p Property) bool { return p.Name == w.Name })
		if at >= 0 {
			if all[i] = have[at]; all[i].Type != w.Type {
				return nil, fault.Invalidf("column_map",
					"The property `%s` is a %s. The `column_map` field cannot make it a %s.", w.Name, all[i].Type, w.Type)
			}
			continue
		}
		if count++; count > MaxProperties {
			return nil, fault.Invalidf("column_map", "A team has at most %d properties of contacts. The `column_map` field "+
				"would create more.", MaxProperties)
		}
		all[i] = Property{ID: id.At(tx.Now()), TeamID: teamID, Name: w.Name, Type: w.Type, CreatedAt: tx.Now()}
		insertProperty(ctx, tx, &all[i])
	}
	return all, nil
}

// WriteBulk writes, in the caller's transaction, rows that Check has accepted, and counts them by outcome. If several
// rows have the same address, the first one creates the contact, and the others update it or are skipped. If a field in
// a row is empty, the contact keeps its previous value.
//
// WriteBulk records no events, because an import of a million rows would cause a million webhook requests. A contact
// that unsubscribed or opted out through an unsubscribe link stays unsubscribed or opted out.
//
// WriteBulk returns a fault if a segment, topic or property that the import uses has been deleted.
func (s *Service) WriteBulk(ctx context.Context, tx *db.Tx, teamID string, b *Bulk, rows []BulkRow) (n BulkCount,
	err error) {
	// Without this lock, concurrent imports for the same team would lock contacts in different orders and deadlock.
	if err := tx.Serialize(ctx, "contacts import "+teamID); err != nil {
		return n, err
	}
	if err := checkReferences(ctx, tx.Reader, teamID, b); err != nil {
		return n, err
	}
	w := &bulkWriter{b: b, teamID: teamID}
	w.merge(rows, &n)
	if err := w.contacts(ctx, tx, &n); err != nil {
		return n, err
	}
	if err := w.values(ctx, tx); err != nil {
		return n, err
	}
	if err := w.relations(ctx, tx); err != nil {
		return n, err
	}
	w.changes(ctx, tx)
	return n, nil
}

// bulkWriter writes the rows in one transaction.
type bulkWriter struct {
	b      *Bulk
	teamID string
	rows   []bulkContact // one row per address
}

// bulkContact is a row of an import together with the contact that has the row's address.
type bulkContact struct {
	BulkRow
	at      *Contact
	created bool
	changed bool
}

// merge combines rows that have the same address into one row. If Skip is set, the first row is used; otherwise later
// values override earlier values.
func (w *bulkWriter) merge(rows []BulkRow, n *BulkCount) {
	w.rows = make([]bulkContact, 0, len(rows))
	index := make(map[string]int, len(rows))
	for _, row := range rows {
		i, found := index[row.Address]
		if !found {
			index[row.Address] = len(w.rows)
			w.rows = append(w.rows, bulkContact{BulkRow: row})
			continue
		}
		if w.b.Skip {
			n.Skipped++
			continue
		}
		n.Updated++
		of := &w.rows[i].BulkRow
		of.FirstName, of.LastName = cmp.Or(row.FirstName, of.FirstName), cmp.Or(row.LastName, of.LastName)
		if row.Unsubscribed != nil {
			of.Unsubscribed = row.Unsubscribed
		}
		of.Values = slices.Clone(of.Values)
		for i, v := range row.Values {
			of.Values[i] = cmp.Or(v, of.Values[i])
		}
	}
}

// contacts creates the missing contacts and computes the changes to the existing ones. Afterwards, w.rows contains only
// rows that must be written.
func (w *bulkWriter) contacts(ctx context.Context, tx *db.Tx, n *BulkCount) error {
	all := make([]*bulkContact, len(w.rows))
	for i := range w.rows {
		all[i] = &w.rows[i]
	}
	missing, err := w.find(ctx, tx, all)
	for try := 0; err == nil && len(missing) > 0; try++ {
		if try == createTries {
			return errContested()
		}
		missing, err = w.create(ctx, tx, missing)
	}
	if err != nil {
		return err
	}
	kept := w.rows[:0]
	for _, row := range w.rows {
		switch {
		case row.created:
			n.Created++
		case w.b.Skip:
			n.Skipped++
			continue
		default:
			n.Updated++
			row.changed = row.at.apply(resolved{Change: row.change()}, "")
		}
		kept = append(kept, row)
	}
	w.rows = kept
	return nil
}

// find locks the contacts that already exist for the given rows, and returns the rows that have no contact yet.
func (w *bulkWriter) find(ctx context.Context, tx *db.Tx, rows []*bulkContact) (missing []*bulkContact, err error) {
	addresses := make([]string, len(rows))
	for i, row := range rows {
		addresses[i] = row.Address
	}
	have, err := lockContacts(ctx, tx, w.teamID, addresses)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		at := have[row.Address]
		switch {
		case at == nil:
			missing = append(missing, row)
		case row.at == nil || at.ID != row.at.ID:
			row.at, row.created = at, false
		}
	}
	return missing, nil
}

// create creates contacts for the given rows, or finds contacts that other transactions have just created. create
// returns the rows that still have no contact because another transaction created the contact and then deleted it.
func (w *bulkWriter) create(ctx context.Context, tx *db.Tx, rows []*bulkContact) (missing []*bulkContact, err error) {
	now := tx.Now()
	fresh := make([]*Contact, len(rows))
	for i, row := range rows {
		row.at = &Contact{ID: id.At(now), TeamID: w.teamID, Address: row.Address, CreatedAt: now, UpdatedAt: now}
		row.at.apply(resolved{Change: row.change()}, "")
		row.created = true
		fresh[i] = row.at
	}
	inserted, err := insertContacts(ctx, tx, w.teamID, fresh)
	if err != nil || inserted == len(fresh) {
		return nil, err
	}
	return w.find(ctx, tx, rows)
}

// change returns how the row changes the fields of the contact itself, as opposed to property values, segments and
// topics.
func (row *bulkContact) change() (c Change) {
	if row.FirstName != "" {
		c.FirstName = &row.FirstName
	}
	if row.LastName != "" {
		c.LastName = &row.LastName
	}
	if byLink := row.at.Unsubscribed && row.at.source != ""; !byLink {
		c.Unsubscribed = row.Unsubscribed
	}
	return c
}

// existingIDs returns the ids of the contacts that existed before this transaction.
func (w *bulkWriter) existingIDs() (ids []string) {
	for i := range w.rows {
		if !w.rows[i].created {
			ids = append(ids, w.rows[i].at.ID)
		}
	}
	return ids
}

// valueKey identifies a contact's value for a property.
type valueKey struct{ contactID, propertyID string }

// values writes the property values that are new or have changed.
func (w *bulkWriter) values(ctx context.Context, tx *db.Tx) error {
	if len(w.b.Properties) == 0 {
		return nil
	}
	older := w.existingIDs()
	ids := map[scalar.Type][]string{}
	for _, p := range w.b.Properties {
		ids[p.Type] = append(ids[p.Type], p.ID)
	}
	texts, err := textsOf(ctx, tx.Reader, w.teamID, older, ids[scalar.String])
	if err != nil {
		return err
	}
	numbers, err := numbersOf(ctx, tx.Reader, w.teamID, older, ids[scalar.Number])
	if err != nil {
		return err
	}
	var newTexts valueColumns[string]
	var newNumbers valueColumns[float64]
	for i := range w.rows {
		row := &w.rows[i]
		for k, p := range w.b.Properties {
			text, key := row.Values[k], valueKey{row.at.ID, p.ID}
			if text == "" {
				continue
			}
			if p.Type == scalar.Number {
				value := scalar.Value{Type: scalar.Number, Text: text}.Number()
				if had, ok := numbers[key]; !ok || had != value {
					newNumbers.add(key, value)
					row.changed = true
				}
			} else if had, ok := texts[key]; !ok || had != text {
				newTexts.add(key, text)
				row.changed = true
			}
		}
	}
	upsertTexts(ctx, tx, w.teamID, &newTexts)
	upsertNumbers(ctx, tx, w.teamID, &newNumbers)
	return nil
}

// valueColumns holds property values as columns, the form that db.Tx.QueueRows accepts.
type valueColumns[T any] struct {
	contacts, properties []string
	values               []T
}

func (c *valueColumns[T]) add(k valueKey, value T) {
	c.contacts, c.properties = append(c.contacts, k.contactID), append(c.properties, k.propertyID)
	c.values = append(c.values, value)
}

// relations adds the contacts to the import's segments and topics.
func (w *bulkWriter) relations(ctx context.Context, tx *db.Tx) error {
	older := w.existingIDs()
	for _, segmentID := range w.b.Segments {
		members, err := segments.MembersAmong(ctx, tx.Reader, w.teamID, segmentID, older)
		if err != nil {
			return err
		}
		var added []string
		for i := range w.rows {
			if contactID := w.rows[i].at.ID; !members[contactID] {
				added = append(added, contactID)
				w.rows[i].changed = true
			}
		}
		segments.AddMembers(ctx, tx, w.teamID, segmentID, added)
	}
	for _, t := range w.b.Topics {
		chosen, err := choicesAmong(ctx, tx.Reader, w.teamID, t.TopicID, older)
		if err != nil {
			return err
		}
		var changed []string
		for i := range w.rows {
			had, found := chosen[w.rows[i].at.ID]
			byLink := had.subscription == OptOut && had.source != ""
			if found && (had.subscription == t.Subscription || byLink) {
				continue
			}
			changed = append(changed, w.rows[i].at.ID)
			w.rows[i].changed = true
		}
		setSubscriptions(ctx, tx, w.teamID, t, changed)
	}
	return nil
}

// changes updates the existing contacts that the import changes.
func (w *bulkWriter) changes(ctx context.Context, tx *db.Tx) {
	var all []*Contact
	for i := range w.rows {
		if row := &w.rows[i]; row.changed && !row.created {
			row.at.UpdatedAt = tx.Now()
			all = append(all, row.at)
		}
	}
	updateContacts(ctx, tx, w.teamID, all)
}

// checkReferences returns a fault if a segment, topic or property that the import uses has been deleted.
func checkReferences(ctx context.Context, r db.Reader, teamID string, b *Bulk) error {
	if err := checkTopics(ctx, r, teamID, b.Topics); err != nil {
		return err
	}
	if _, err := segments.CheckManual(ctx, r, teamID, b.Segments); err != nil {
		return err
	}
	if len(b.Properties) == 0 {
		return nil
	}
	names := make([]string, len(b.Properties))
	for i, p := range b.Properties {
		names[i] = p.Name
	}
	have, err := propertiesNamed(ctx, r, teamID, names)
	if err != nil {
		return err
	}
	for _, p := range b.Properties {
		if !slices.ContainsFunc(have, func(h Property) bool { return h.ID == p.ID }) {
			return fault.Invalidf("column_map", "The property `%s` was deleted.", p.Name)
		}
	}
	return nil
}
