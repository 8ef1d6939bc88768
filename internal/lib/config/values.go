package config

import (
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// The sources of a value.
const (
	FromDefault  = "default"
	FromFile     = "file"
	FromVariable = "variable"
	FromFlag     = "flag"
	FromOthers   = "derived" // from other settings or from the machine
)

// Value is a setting with its value as text.
type Value struct {
	Key, Text string
	// From is one of the constants above, and Place names the file with its line, the variable or the flag. Values leaves
	// them empty, because only Read knows them.
	From, Place string
}

// Values returns all settings in the order of the manual, except for the regions, and then the relays. A secret, or the
// user name of a relay, has the text "(set)", or none if it is empty.
func Values(c Config) []Value {
	var all []Value
	for _, s := range settings(&c) {
		if s.isTables() {
			continue
		}
		all = append(all, Value{Key: s.key, Text: s.text()})
	}
	return append(all, relayValues(c, nil)...)
}

// values returns all settings with their sources, and then the relays and the hosts of the regions.
func (l *loader) values() (all []Value) {
	for _, s := range l.settings {
		if !s.isTables() {
			all = append(all, Value{s.key, s.text(), s.from(), s.place()})
		}
	}
	for _, r := range relayValues(l.config, l.places) {
		r.From = FromFile
		all = append(all, r)
	}
	for _, label := range slices.Sorted(maps.Keys(l.config.Regions)) {
		v := reflect.ValueOf(l.config.Regions[label])
		for i := range v.NumField() {
			region, name := regionsKey+"."+label, v.Type().Field(i).Tag.Get("toml")
			all = append(all, Value{region + "." + name, v.Field(i).String(), FromFile, l.placeIn(region, name)})
		}
	}
	return all
}

// from returns the kind of source of the value.
func (s *setting) from() string {
	switch {
	case s.derived:
		return FromOthers
	case s.origin == "" || s.origin == FromDefault:
		return FromDefault
	case strings.HasPrefix(s.origin, "--"):
		return FromFlag
	case strings.HasPrefix(s.origin, variablePrefix):
		return FromVariable
	}
	return FromFile
}

// place returns where the value is, or "" if no source has it.
func (s *setting) place() string {
	if from := s.from(); from == FromDefault || from == FromOthers {
		return ""
	}
	return s.origin
}

// text returns the value as text without secrets.
func (s *setting) text() string {
	if zones, ok := s.value.Interface().([]string); ok && isBlockLists(s.key) {
		zones = slices.Clone(zones)
		for i, zone := range zones {
			zones[i] = WithoutKey(zone)
		}
		return strings.Join(zones, ",")
	}
	if s.key == "relay_username" {
		return Secret(s.value.String()).String() // some relays take a token as user name and password
	}
	return textOf(s.value)
}

func isBlockLists(key string) bool {
	return key == "doctor_address_lists" || key == "doctor_name_lists"
}

// keyMin is the minimum length of a customer's key in the zone of a block list. First labels of public zones, such as
// zen, are shorter.
const keyMin = 16

// WithoutKey returns the zone of a block list without the key of a customer, which some lists have as the first label.
func WithoutKey(zone string) string {
	if first, rest, ok := strings.Cut(zone, "."); ok && len(first) >= keyMin {
		return "(key)." + rest
	}
	return zone
}

// textOf returns a value as it is written in a variable: the items of lists are separated by commas.
func textOf(v reflect.Value) string {
	if level, ok := v.Interface().(slog.Level); ok {
		return strings.ToLower(level.String())
	}
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v.Interface())
	}
	items := make([]string, v.Len())
	for i := range items {
		items[i] = fmt.Sprint(v.Index(i).Interface())
	}
	return strings.Join(items, ",")
}

// Secrets returns the values of all secret settings that are set.
func Secrets(c Config) (all []string) {
	add := func(secrets ...Secret) {
		for _, s := range secrets {
			if s != "" {
				all = append(all, string(s))
			}
		}
	}
	for _, s := range settings(&c) {
		switch v := s.value.Interface().(type) {
		case Secret:
			add(v)
		case []Secret:
			add(v...)
		case []string:
			for _, zone := range v {
				if key, _, _ := strings.Cut(zone, "."); isBlockLists(s.key) && WithoutKey(zone) != zone {
					add(Secret(key))
				}
			}
		}
	}
	for _, r := range c.Relays {
		add(r.Password)
	}
	return all
}
