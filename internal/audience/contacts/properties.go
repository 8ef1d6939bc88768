package contacts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/softdelete"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// Property is a field that a team defines for its contacts.
type Property struct {
	ID        string
	TeamID    string
	Name      string       // the property's name in contacts and placeholders
	Type      scalar.Type  // String or Number; never changes
	Fallback  scalar.Value // used for contacts without a value; zero if there is no fallback
	CreatedAt time.Time
}

// reserved lists, in lower case, the names that no property may have because placeholders use them for other values.
var reserved = []string{"email", "first_name", "last_name", "unsubscribed", "unsubscribe_url",
	"postrider_unsubscribe_url", "resend_unsubscribe_url", "contact", "this"}

// NewProperty describes a property to create.
type NewProperty struct {
	Name     string
	Type     scalar.Type
	Fallback scalar.Value
}

// Check validates a new property in the same way as CreateProperty, except that the team may have it already.
func (n *NewProperty) Check() error { return n.property("").check() }

// property returns a team's property without its id.
func (n *NewProperty) property(teamID string) *Property {
	return &Property{TeamID: teamID, Name: n.Name, Type: n.Type, Fallback: n.Fallback}
}

// CreateProperty creates a property. If the team already has a property with that name, CreateProperty returns an
// Invalid fault.
func (s *Service) CreateProperty(ctx context.Context, teamID string, n NewProperty) (Property, error) {
	p := *n.property(teamID)
	if err := p.check(); err != nil {
		return p, err
	}
	err := s.DB.Update(ctx, func(tx *db.Tx) error {
		// Concurrent transactions must count and insert properties one at a time, so that the limit is not exceeded.
		if err := tx.Serialize(ctx, "properties of "+teamID); err != nil {
			return err
		}
		count, err := countProperties(ctx, tx.Reader, teamID)
		if err != nil {
			return fmt.Errorf("count properties: %w", err)
		}
		if err := CheckPropertyCount(count); err != nil {
			return err
		}
		p.ID, p.CreatedAt = id.At(tx.Now()), tx.Now()
		insertProperty(ctx, tx, &p)
		audit.Target(ctx, p.ID)
		return nil
	})
	if s.DB.Violates(err, "contact_properties_name") {
		err = fault.Invalidf("key", "The `key` field is %s, which is a property already.", p.Name).Because(err)
	}
	return p, err
}

// CheckPropertyCount returns an Invalid fault if a team that has so many properties cannot have another one.
func CheckPropertyCount(have int) error {
	if have < MaxProperties {
		return nil
	}
	return fault.Invalidf("", "A team has at most %d properties of contacts. Delete one that is not needed.", MaxProperties)
}

func (p *Property) check() error {
	switch {
	case p.Name == "":
		return fault.MissingField("key")
	case !isName(p.Name):
		return fault.Invalidf("key", "The `key` field must have at most %d characters, each an ASCII letter, a digit or an "+
			"underscore.", maxProperty)
	case slices.Contains(reserved, strings.ToLower(p.Name)):
		return fault.Invalidf("key", "The `key` field is %s, which is reserved. Choose another.", p.Name)
	case p.Type == "":
		return fault.MissingField("type")
	case p.Type != scalar.String && p.Type != scalar.Number:
		return fault.Invalidf("type", "The `type` field must be `string` or `number`.")
	}
	return p.checkFallback()
}

func (p *Property) checkFallback() error {
	if p.Fallback == (scalar.Value{}) {
		return nil
	}
	return p.Fallback.Check("fallback_value", p.Type)
}

// isName reports whether a string is a valid property name.
func isName(text string) bool {
	return text != "" && len(text) <= maxProperty && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	})
}

// Property returns a property, or a NotFound fault.
func (s *Service) Property(ctx context.Context, teamID, propertyID string) (Property, error) {
	return propertyByID(ctx, s.DB.Reader, teamID, strings.ToLower(propertyID))
}

// Properties returns a page of a team's properties, newest first.
func (s *Service) Properties(ctx context.Context, teamID string, p page.Page) ([]Property, bool, error) {
	return listProperties(ctx, s.DB.Reader, teamID, p)
}

// PropertiesNamed returns the team's properties that have one of the given names, or all properties if names is nil.
func (s *Service) PropertiesNamed(ctx context.Context, r db.Reader, teamID string, names []string) ([]Property, error) {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !isName(n) })
	return propertiesNamed(ctx, r, teamID, names)
}

// UpdateProperty changes or removes a property's fallback.
func (s *Service) UpdateProperty(ctx context.Context, teamID, propertyID string, fallback scalar.Value) (
	p Property, err error) {
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		if p, err = propertyByID(ctx, tx.Reader, teamID, strings.ToLower(propertyID)); err != nil {
			return err
		}
		p.Fallback = fallback
		if err := p.checkFallback(); err != nil {
			return err
		}
		return updateProperty(ctx, tx, &p)
	})
	return p, err
}

// DeleteProperty deletes a property. The property can no longer be read after the commit; [Service.Sweep] deletes the
// contacts' values for it later.
func (s *Service) DeleteProperty(ctx context.Context, teamID, propertyID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		return softdelete.Mark(ctx, tx, propertyTable, teamID, strings.ToLower(propertyID))
	})
}

func noProperty() error { return fault.NotFoundf("Contact property not found") }

// resolveValues looks up the properties that the given values belong to, and validates the values. If a property does
// not exist, resolveValues returns an Invalid fault.
func resolveValues(ctx context.Context, r db.Reader, teamID string, values map[string]scalar.Value) ([]propertyValue,
	error) {
	if len(values) == 0 {
		return nil, nil
	}
	if len(values) > MaxProperties {
		return nil, fault.Invalidf("properties", "The `properties` field names %d properties; a team has at most %d.",
			len(values), MaxProperties)
	}
	names := slices.Sorted(maps.Keys(values))
	for _, name := range names {
		if !isName(name) {
			return nil, noSuchProperty(name)
		}
	}
	have, err := propertiesNamed(ctx, r, teamID, names)
	if err != nil {
		return nil, err
	}
	all := make([]propertyValue, 0, len(names))
	for _, name := range names {
		i := slices.IndexFunc(have, func(p Property) bool { return p.Name == name })
		if i < 0 {
			return nil, noSuchProperty(name)
		}
		v := propertyValue{have[i], values[name]}
		if v.value != (scalar.Value{}) {
			if err := v.value.Check("properties."+name, v.Type); err != nil {
				return nil, err
			}
		}
		all = append(all, v)
	}
	return all, nil
}

func noSuchProperty(name string) error {
	return fault.Invalidf("properties", "The `properties` field names %.50q, which is no property of this team. Create "+
		"it first.", name)
}
