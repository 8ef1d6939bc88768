package wire

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// depthMax is the number of levels of nested objects that the API reference shows.
const depthMax = 6

// mediaNames has the names of response formats besides JSON.
var mediaNames = map[string]string{MediaCSV: "CSV file", MediaNDJSON: "lines of JSON objects", MediaFile: "file",
	MediaEvents: "stream of server-sent events", mediaForm: "form with a file"}

// content returns the type and the fields of a request or response body.
func content(r huma.Registry, media map[string]*huma.MediaType) (string, []ReferenceField) {
	var names []string
	var of *huma.Schema
	for _, m := range slices.Sorted(maps.Keys(media)) {
		s := media[m].Schema
		if m == MediaJSON {
			names = append(names, schemaType(r, s))
		} else {
			names = append(names, cmp.Or(mediaNames[m], m))
		}
		if resolved := resolve(r, s); m != MediaCSV && m != MediaFile && resolved != nil {
			of = s
		}
	}
	if of == nil {
		return strings.Join(names, " or "), nil
	}
	return strings.Join(names, " or "), children(r, of, 0)
}

// resolve returns the schema that a reference points to.
func resolve(r huma.Registry, s *huma.Schema) *huma.Schema {
	for s != nil && s.Ref != "" {
		s = r.SchemaFromRef(s.Ref)
	}
	return s
}

// children returns the fields of an object, or of the objects in a list or in a map with names that clients choose.
func children(r huma.Registry, s *huma.Schema, depth int) (all []ReferenceField) {
	ref := ""
	for s != nil {
		if s.Ref != "" {
			ref, s = s.Ref, r.SchemaFromRef(s.Ref)
			continue
		}
		next := s.Items
		if further, ok := s.AdditionalProperties.(*huma.Schema); ok && next == nil && len(s.Properties) == 0 {
			next = further
		}
		for _, one := range s.OneOf {
			if next == nil && one.Type != "null" && (one.Ref != "" || one.Type == huma.TypeArray || len(one.Properties) > 0) {
				next = one
			}
		}
		if next == nil {
			break
		}
		s = next
	}
	if s == nil || depth == depthMax {
		return nil
	}
	for _, name := range fieldOrder(r, ref, s) {
		p := s.Properties[name]
		f := field(r, name, p, slices.Contains(s.Required, name))
		f.Children = children(r, p, depth+1)
		all = append(all, f)
	}
	return all
}

// fieldOrder returns the names of an object's fields in the order of its Go type, without hidden fields. If the type is
// unknown, the names are sorted.
func fieldOrder(r huma.Registry, ref string, s *huma.Schema) []string {
	if ref != "" {
		if t := r.TypeFromRef(ref); t != nil {
			if order := jsonNames(t); len(order) > 0 {
				return slices.DeleteFunc(order, func(name string) bool { return s.Properties[name] == nil })
			}
		}
	}
	return slices.Sorted(maps.Keys(s.Properties))
}

// jsonNames returns the names of a struct's JSON fields in their order. Hidden fields are left out.
func jsonNames(t reflect.Type) (names []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			names = append(names, jsonNames(f.Type)...)
		} else if name != "" && name != "-" && f.Tag.Get("hidden") == "" {
			names = append(names, name)
		}
	}
	return names
}

func field(r huma.Registry, name string, s *huma.Schema, required bool) ReferenceField {
	return ReferenceField{Name: name, Type: schemaType(r, s), Required: required, Limits: limits(r, s),
		Description: s.Description}
}

// schemaType returns the name of a schema's type for readers.
func schemaType(r huma.Registry, s *huma.Schema) string {
	if of := resolve(r, s); s.Ref != "" && of != nil {
		return schemaType(r, of)
	}
	if all := slices.Concat(s.OneOf, s.AnyOf); len(all) > 0 {
		var names []string
		for _, one := range all {
			if name := schemaType(r, one); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return strings.Join(names, " or ")
	}
	name := s.Type
	switch {
	case s.Type == huma.TypeArray && s.Items != nil:
		name = "list of " + plural(schemaType(r, s.Items))
	case s.Type == "":
		name = "any"
	case s.Format == "uuid":
		name = "UUID"
	case s.Format == "date-time":
		name = "ISO 8601 time"
	case s.Format == "binary":
		name = "file"
	case s.Type == huma.TypeObject:
		if of, ok := s.AdditionalProperties.(*huma.Schema); ok && len(s.Properties) == 0 {
			name = "object of " + plural(schemaType(r, of))
		}
	}
	if s.Nullable {
		name += " or null"
	}
	return name
}

// plural returns the plural of a type's name.
func plural(name string) string {
	switch {
	case strings.HasPrefix(name, "list of "), strings.HasPrefix(name, "object of "):
		first, rest, _ := strings.Cut(name, " ")
		return first + "s " + rest
	case strings.Contains(name, " or "):
		return "values: " + name
	case name == "any":
		return "values"
	}
	return name + "s"
}

// limits describes the limits and the default of a field, such as "1 to 100, default 20".
func limits(r huma.Registry, s *huma.Schema) string {
	var all []string
	own := s
	if len(own.OneOf) > 0 {
		for _, one := range own.OneOf {
			if of := resolve(r, one); of != nil && of.Type == huma.TypeArray {
				own = of
			}
		}
	}
	if own.Ref != "" {
		own = resolve(r, own)
	}
	of := own
	if own.Type == huma.TypeArray && own.Items != nil && own.Items.Ref == "" {
		of = own.Items
	}
	if len(of.Enum) > 0 {
		all = append(all, "one of "+enumText(of.Enum))
	}
	between := func(low, high *float64, unit string) {
		switch {
		case low != nil && high != nil:
			all = append(all, fmt.Sprintf("%v to %v%s", *low, *high, unit))
		case low != nil:
			all = append(all, fmt.Sprintf("at least %v%s", *low, unit))
		case high != nil:
			all = append(all, fmt.Sprintf("at most %v%s", *high, unit))
		}
	}
	between(of.Minimum, of.Maximum, "")
	between(number(of.MinLength), number(of.MaxLength), " characters")
	between(number(own.MinItems), number(own.MaxItems), " items")
	between(number(own.MinProperties), number(own.MaxProperties), " fields")
	if s.Default != nil {
		all = append(all, fmt.Sprintf("default %v", s.Default))
	}
	if s.Deprecated {
		all = append(all, "deprecated")
	}
	return strings.Join(all, ", ")
}

func number(n *int) *float64 {
	if n == nil {
		return nil
	}
	return new(float64(*n))
}

func enumText(values []any) string {
	names := make([]string, 0, len(values))
	for _, v := range values {
		if v == "" {
			v = "an empty string"
		}
		names = append(names, fmt.Sprint(v))
	}
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
