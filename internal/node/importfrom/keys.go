package importfrom

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
)

const (
	maxKey  = 50   // characters of the key of a property or variable
	maxKeys = 1000 // names of values that the state remembers; a team has at most 200 properties
	maxName = 255  // bytes of such a name
)

// Key returns a name with only the characters that keys may have.
func Key(name string) string {
	key := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.TrimSpace(name))
	return key[:min(len(key), maxKey)]
}

// propertyKey is like Key, for properties: reserved names get an underscore. It returns "" for a name without
// characters.
func (m *importer) propertyKey(name string) string {
	if m.properties[name] != nil {
		return name
	}
	key := Key(name)
	n := contacts.NewProperty{Name: key, Type: scalar.String}
	if key != "" && n.Check() != nil {
		key += "_"
	}
	return key
}

// nameValues chooses the key of the property for each name of a value that is new. Names that are keys keep them. Two
// names never get the same key; the second one gets a number. The state remembers the choice, so that an import that
// continues makes the same one.
func (m *importer) nameValues(all []Contact) {
	type candidate struct {
		name, key string
	}
	var fresh []candidate
	seen := map[string]bool{}
	for i := range all {
		for name := range all[i].Values {
			if _, known := m.st.Keys[name]; !known && !seen[name] && len(seen) < maxKeys {
				seen[name] = true
				fresh = append(fresh, candidate{name, m.propertyKey(name)})
			}
		}
	}
	slices.SortFunc(fresh, func(a, b candidate) int {
		if exact := a.name == a.key; exact != (b.name == b.key) {
			if exact {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.name, b.name)
	})
	taken := make(map[string]string, len(m.st.Keys))
	for name, key := range m.st.Keys {
		taken[key] = name
	}
	for _, c := range fresh {
		if c.key == "" || len(c.name) > maxName || len(m.st.Keys) >= maxKeys {
			continue
		}
		free := c.key
		for n := 2; taken[free] != ""; n++ {
			suffix := fmt.Sprintf("_%d", n)
			free = c.key[:min(len(c.key), maxKey-len(suffix))] + suffix
		}
		if free != c.key {
			m.st.Report.note(fmt.Sprintf("The values of %q are in the property %s, because %s has the values of %q.", c.name,
				free, c.key, taken[c.key]))
		}
		taken[free], m.st.Keys[c.name] = c.name, free
	}
}
