package contacts

import (
	"context"

	"github.com/postrider/postrider/internal/audience/softdelete"
)

// topicTable and propertyTable tell package softdelete how topics and properties are deleted.
var (
	topicTable = softdelete.Table{Name: "topics", NotFound: noTopic, Children: []softdelete.Child{
		{Table: "contact_topics", Column: "topic_id", Order: "contact_id"}}}

	propertyTable = softdelete.Table{Name: "contact_properties", NotFound: noProperty, Children: []softdelete.Child{
		{Table: "contact_texts", Column: "property_id", Order: "value, contact_id", PostgresOrder: "head, contact_id"},
		{Table: "contact_numbers", Column: "property_id", Order: "value, contact_id"}}}
)

// Sweep removes the rows of deleted topics, segments and properties, and the rows that refer to them. Sweep must be
// called periodically.
func (s *Service) Sweep(ctx context.Context) error {
	if err := softdelete.Sweep(ctx, s.DB, topicTable); err != nil {
		return err
	}
	if err := s.Segments.Sweep(ctx); err != nil {
		return err
	}
	return softdelete.Sweep(ctx, s.DB, propertyTable)
}
