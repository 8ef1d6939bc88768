package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/postrider/postrider/internal/lib/spelling"
)

// DefaultFile is the configuration file that Load reads if it exists and no other file is named.
const DefaultFile = "postrider.toml"

// SystemFile is the configuration file of an installation from a package, and SystemVariables the file with variables,
// which its unit also reads.
const (
	SystemFile      = "/etc/postrider/postrider.toml"
	SystemVariables = "/etc/postrider/environment"
)

const (
	regionsKey   = "regions"
	fileVariable = "POSTRIDER_CONFIG"
)

// Source holds the inputs from which Load reads settings. If a function in Source is nil, Load calls the corresponding
// function in package os.
type Source struct {
	// Given has the values of the given flags by name, such as http-listen. The flag config names the configuration file.
	Given map[string]string
	// Environ returns the variables as NAME=value. POSTRIDER_HTTP_LISTEN and so on are settings; an empty one counts as
	// not set. POSTRIDER_CONFIG names the configuration file.
	Environ    func() []string
	SystemFile string // read if no file is named and DefaultFile does not exist; may be ""
	// SystemVariables is a file with further variables, read only with SystemFile; may be "". The variables of the
	// process override it.
	SystemVariables string
	ReadFile        func(name string) ([]byte, error) // reads the files
	Hostname        func() (string, error)            // host name of the machine
	Defaults        map[string]string                 // values by key that override the built-in defaults for one command
	// Derived says by key what the command uses in place of an empty value, for its help.
	Derived map[string]string
}

// setting is a field of Config with the source of its value.
type setting struct {
	key, def, doc string
	live          bool // whether a change takes effect without a restart
	value         reflect.Value
	origin        string // where the value is: "default", a file with its line, a variable or a flag; "" if there is none
	derived       bool   // whether the value follows from others or from the machine
}

func (s *setting) env() string  { return "POSTRIDER_" + strings.ToUpper(s.key) }
func (s *setting) flag() string { return strings.ReplaceAll(s.key, "_", "-") }

// isTables reports whether the setting consists of tables, which are only in the file.
func (s *setting) isTables() bool { return s.key == regionsKey || s.key == relaysKey }

// settings lists the fields of a Config in declaration order.
func settings(c *Config) []*setting {
	v := reflect.ValueOf(c).Elem()
	var list []*setting
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		list = append(list, &setting{key: tag.Get("toml"), def: tag.Get("default"), doc: tag.Get("doc"),
			live: tag.Get(liveTag) == "true", value: v.Field(i)})
	}
	return list
}

// loader collects setting values and problems.
type loader struct {
	config    Config
	settings  []*setting
	variables map[string]variable // by name
	// places has the file and the line of tables, such as relays[1] and regions.eu, and of their keys.
	places   map[string]string
	problems []error
}

// variable is an environment variable.
type variable struct {
	text  string
	place string // its name, with the file that has it
}

// Loaded is the result of Read.
type Loaded struct {
	Config Config
	Values []Value // all settings in the order of the manual
	// Variables are the variables of Source.SystemVariables that the process lacks.
	Variables map[string]string
}

// Load reads the settings from all sources, validates them, and fills in derived values. The error joins all problems,
// which are of type *Problem.
func Load(src Source) (Config, error) {
	loaded, err := Read(src)
	return loaded.Config, err
}

// Read is Load with further results.
func Read(src Source) (Loaded, error) {
	if src.Environ == nil {
		src.Environ = os.Environ
	}
	if src.ReadFile == nil {
		src.ReadFile = os.ReadFile
	}
	if src.Hostname == nil {
		src.Hostname = os.Hostname
	}
	l := &loader{variables: map[string]variable{}}
	l.settings = settings(&l.config)
	for _, v := range src.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if _, found := l.variables[name]; !found { // of several, the first one counts, as for os.Getenv
			l.variables[name] = variable{value, name}
		}
	}

	l.defaults(src.Defaults)
	further := l.file(src)
	l.unknownVariables()
	l.passwords(src.ReadFile)
	for _, s := range l.settings {
		if s.isTables() {
			continue
		}
		if v := l.variables[s.env()]; v.text != "" && !isServiceLink(s.env(), v.text) {
			l.set(s, v.text, v.place)
		}
		if text, ok := src.Given[s.flag()]; ok {
			l.set(s, text, "--"+s.flag())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(src.Given)) {
		if name != fileFlag && !slices.ContainsFunc(l.settings, func(s *setting) bool { return s.flag() == name }) {
			l.problem("--%s: there is no such flag", name)
		}
	}
	if len(l.problems) == 0 { // Values derived from wrong values would only add more problems.
		l.derive(src)
	}
	l.check()
	if len(l.problems) > 0 {
		return Loaded{}, errors.Join(l.problems...)
	}
	return Loaded{l.config, l.values(), further}, nil
}

// derive completes the settings, and notes which ones it has changed.
func (l *loader) derive(src Source) {
	before := make([]string, len(l.settings))
	for i, s := range l.settings {
		before[i] = textOf(s.value)
	}
	l.complete(src)
	for i, s := range l.settings {
		s.derived = (s.origin == "" || s.origin == "default") && textOf(s.value) != before[i]
	}
}

func (l *loader) find(key string) *setting {
	i := slices.IndexFunc(l.settings, func(s *setting) bool { return s.key == key })
	if i < 0 || l.settings[i].isTables() {
		return nil
	}
	return l.settings[i]
}

func (l *loader) defaults(other map[string]string) {
	for _, s := range l.settings {
		if s.def != "" {
			l.set(s, s.def, "default")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(other)) {
		if s := l.find(key); s != nil {
			l.set(s, other[key], "default")
		} else {
			l.problem("default of %s: there is no such setting", key)
		}
	}
}

// file reads the configuration file that a flag or POSTRIDER_CONFIG names. Otherwise, file reads the default file, or
// the system's file, if one of them exists. With the system's file, it also reads the system's variables, and returns
// those that the process lacks.
func (l *loader) file(src Source) (further map[string]string) {
	names := []string{DefaultFile, src.SystemFile}
	named := cmp.Or(src.Given[fileFlag], l.variables[fileVariable].text)
	if named != "" {
		names = []string{named}
	}
	var denied error
	for _, name := range names {
		if name == "" {
			continue
		}
		data, err := src.ReadFile(name)
		switch {
		case err == nil:
			l.read(name, data)
			if name == src.SystemFile && src.SystemVariables != "" {
				return l.systemVariables(src)
			}
			return nil
		case errors.Is(err, fs.ErrNotExist) && named == "":
		case errors.Is(err, fs.ErrPermission): // as in a working directory that belongs to another user
			denied = cmp.Or(denied, err)
		default:
			l.problem("read settings: %w", err)
			return nil
		}
	}
	if denied != nil {
		l.problem("read settings: %w; run this command as the user of the node", denied)
	}
	return nil
}

// read sets the settings of a configuration file.
func (l *loader) read(name string, data []byte) {
	values := map[string]any{}
	if err := toml.Unmarshal(data, &values); err != nil {
		if wrong, ok := errors.AsType[toml.ParseError](err); ok {
			l.problemAt("", fmt.Sprintf("%s:%d", name, wrong.Position.Line), "the file is not TOML: %s", wrong.Message)
			return
		}
		l.problemAt("", name, "the file is not TOML: %w", err)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		place := placeAt(name, lineOf(data, key))
		switch s := l.find(key); {
		case key == regionsKey:
			l.regions(values[key], name, data)
		case key == relaysKey:
			l.relays(values[key], name, data)
		case s == nil:
			l.problemAt(key, place, "there is no such setting%s", l.suggestion(key))
		default:
			l.set(s, values[key], place)
		}
	}
}

// suggestion returns the end of a sentence about an unknown setting.
func (l *loader) suggestion(key string) string {
	var known []string
	for _, s := range l.settings {
		known = append(known, s.key)
	}
	if nearest := spelling.Nearest(key, known); nearest != "" {
		return "; did you mean " + nearest + "?"
	}
	return "; docs/configuration.md lists all settings"
}

// regions reads the tables [regions.<label>] of the configuration file into the map of regions. Load checks the regions
// together with the other settings.
func (l *loader) regions(value any, name string, data []byte) {
	tables, ok := value.(map[string]any)
	if !ok {
		l.problemAt(regionsKey, name, "must be tables such as [regions.us-east-1]")
		return
	}
	l.config.Regions = map[string]Region{}
	for _, label := range slices.Sorted(maps.Keys(tables)) {
		region := regionsKey + "." + label
		line := lineOf(data, region)
		l.setPlace(region, placeAt(name, line))
		l.setPlacesOfKeys(region, name, data, line)
		table, ok := tables[label].(map[string]any)
		if !ok {
			l.problemAt(region, l.places[region], "must be a table, [regions.%s]", label)
			continue
		}
		var r Region
		v := reflect.ValueOf(&r).Elem()
		for _, key := range slices.Sorted(maps.Keys(table)) {
			place := l.placeIn(region, key)
			text, isText := table[key].(string)
			i := slices.IndexFunc(slices.Collect(v.Type().Fields()),
				func(f reflect.StructField) bool { return f.Tag.Get("toml") == key })
			switch {
			case i < 0 && l.find(key) != nil:
				l.problemAt(region+"."+key, place, outsideTables)
			case i < 0:
				l.problemAt(region+"."+key, place, "there is no such setting; use bounce_host, inbound_host, "+
					"spf_include or tracking_host")
			case !isText:
				l.problemAt(region+"."+key, place, "must be a text")
			default:
				v.Field(i).SetString(text)
			}
		}
		l.config.Regions[label] = r
	}
}

// set sets a setting from a string or from a value in the configuration file.
func (l *loader) set(s *setting, value any, origin string) {
	s.origin = origin
	for _, err := range assign(s.value, value) {
		l.problemAt(s.key, origin, "%w", err)
	}
}

// assign converts a string or a value from the configuration file to the setting's type. In a string, commas separate
// the items of a list. A list keeps its valid items, so that all problems are reported together.
func assign(v reflect.Value, value any) (wrong []error) {
	if v.Kind() == reflect.Slice {
		items, ok := value.([]any)
		if !ok {
			for part := range strings.SplitSeq(fmt.Sprint(value), ",") {
				if part = strings.TrimSpace(part); part != "" {
					items = append(items, part)
				}
			}
		}
		list := reflect.MakeSlice(v.Type(), 0, len(items))
		for _, item := range items {
			one := reflect.New(v.Type().Elem()).Elem()
			if problems := assign(one, item); len(problems) > 0 {
				wrong = append(wrong, problems...)
				continue
			}
			list = reflect.Append(list, one)
		}
		v.Set(list)
		return wrong
	}
	switch value.(type) {
	case string, int64, float64, bool:
		if err := assignText(v, strings.TrimSpace(fmt.Sprint(value))); err != nil {
			return []error{err}
		}
		return nil
	}
	return []error{errors.New("must be a single value, not a list, table or date")}
}

func assignText(v reflect.Value, text string) error {
	switch p := v.Addr().Interface().(type) {
	case *slog.Level:
		if !slices.Contains(choices["log_level"], strings.ToLower(text)) {
			return fmt.Errorf("%q is not known; use one of %s", text, strings.Join(choices["log_level"], ", "))
		}
	case *netip.Prefix:
		var err error
		if *p, err = netip.ParsePrefix(text); err != nil {
			return fmt.Errorf("%q is no network; write it as 10.0.0.0/8, or 10.1.2.3/32 for one address", text)
		}
		return nil
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	if d, ok := v.Addr().Interface().(*time.Duration); ok {
		var err error
		if *d, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("%q is not a duration: write it as 30s, 5m or 1h30m", text)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number; write it as 10", text)
		}
		v.SetInt(int64(n))
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number; write it as 10 or 0.5", text)
		}
		v.SetFloat(n)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false; write true or false", text)
		}
		v.SetBool(b)
	default:
		panic("config: a setting of type " + v.Type().String())
	}
	return nil
}
