package config

import (
	"cmp"
	"encoding"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// DefaultFile is the configuration file that Load reads if it exists and no other file is named.
const DefaultFile = "postrider.toml"

const regionsKey = "regions"

// Source holds the inputs from which Load reads settings. If a function in Source is nil, Load calls the corresponding
// function in package os.
type Source struct {
	Args  []string      // flags, such as --http-listen=:80 or --http-listen :80; --config names the configuration file
	Flags *flag.FlagSet // the caller's additional flags; if nil, arguments that are not flags are errors
	// POSTRIDER_HTTP_LISTEN and so on; empty means not set; POSTRIDER_CONFIG names the configuration file
	Getenv   func(name string) string
	ReadFile func(name string) ([]byte, error) // reads the file
	Hostname func() (string, error)            // host name of the machine
	Defaults map[string]string                 // values by key that override the built-in defaults for one command
	Derived  map[string]string                 // by key: what the command uses in place of an empty value, for its help
}

// setting is a field of Config with the source of its value.
type setting struct {
	key, def, doc string
	value         reflect.Value
	origin        string
}

func (s *setting) env() string  { return "POSTRIDER_" + strings.ToUpper(s.key) }
func (s *setting) flag() string { return strings.ReplaceAll(s.key, "_", "-") }

// settings lists the fields of a Config in declaration order.
func settings(c *Config) []*setting {
	v := reflect.ValueOf(c).Elem()
	var list []*setting
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		list = append(list, &setting{key: tag.Get("toml"), def: tag.Get("default"), doc: tag.Get("doc"), value: v.Field(i)})
	}
	return list
}

// loader collects setting values and problems.
type loader struct {
	config   Config
	settings []*setting
	problems []error
}

// Load reads the settings from all sources, validates them, and fills in derived values. The error joins all problems,
// or is flag.ErrHelp if the arguments request help.
func Load(src Source) (Config, error) {
	if src.Getenv == nil {
		src.Getenv = os.Getenv
	}
	if src.ReadFile == nil {
		src.ReadFile = os.ReadFile
	}
	if src.Hostname == nil {
		src.Hostname = os.Hostname
	}
	l := &loader{}
	l.settings = settings(&l.config)

	given, err := l.parseFlags(&src)
	if err != nil {
		return Config{}, err
	}
	l.defaults(src.Defaults)
	l.file(src, given["config"])
	for _, s := range l.settings {
		if s.key == regionsKey {
			continue
		}
		if text := src.Getenv(s.env()); text != "" {
			l.set(s, text, s.env())
		}
		if text, ok := given[s.flag()]; ok {
			l.set(s, text, "--"+s.flag())
		}
	}
	if len(l.problems) == 0 { // Values derived from wrong values would only add more problems.
		l.complete(src)
	}
	l.check()
	if len(l.problems) > 0 {
		return Config{}, errors.Join(l.problems...)
	}
	return l.config, nil
}

// defaultOf returns the default of a setting as the command's help shows it, or "" if the help shows none.
func (src *Source) defaultOf(s *setting) string {
	if derived, ok := src.Derived[s.key]; ok {
		return derived
	}
	def, ok := src.Defaults[s.key]
	if !ok {
		return s.def
	}
	if def == "" && s.def != "" {
		return "empty"
	}
	return def
}

// parseFlags returns the values of the given flags, as strings, by flag name.
func (l *loader) parseFlags(src *Source) (map[string]string, error) {
	set := src.Flags
	if set == nil {
		set = flag.NewFlagSet("postrider", flag.ContinueOnError)
		set.SetOutput(io.Discard)
	}
	given := map[string]string{}
	set.Func("config", "`file` with settings (default "+DefaultFile+", when it exists)",
		func(s string) error { given["config"] = s; return nil })
	for _, s := range l.settings {
		if s.key == regionsKey {
			continue
		}
		note := func(text string) error { given[s.flag()] = text; return nil }
		usage := s.doc
		if def := src.defaultOf(s); def != "" {
			usage += " (default " + def + ")"
		}
		if s.value.Kind() == reflect.Bool {
			set.BoolFunc(s.flag(), usage, note)
		} else {
			set.Func(s.flag(), usage, note)
		}
	}
	if err := set.Parse(src.Args); err != nil {
		return nil, err
	}
	if src.Flags == nil && set.NArg() > 0 {
		l.problem("argument %q is not expected: settings are given as --name=value", set.Arg(0))
	}
	return given, nil
}

func (l *loader) problem(format string, args ...any) {
	l.problems = append(l.problems, fmt.Errorf(format, args...))
}

func (l *loader) find(key string) *setting {
	i := slices.IndexFunc(l.settings, func(s *setting) bool { return s.key == key })
	if i < 0 || key == regionsKey {
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

// file reads the configuration file that a flag or POSTRIDER_CONFIG names, or the default file if it exists.
func (l *loader) file(src Source, named string) {
	named = cmp.Or(named, src.Getenv("POSTRIDER_CONFIG"))
	name := cmp.Or(named, DefaultFile)
	data, err := src.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && named == "" {
		return
	}
	if err != nil {
		l.problem("read settings: %w", err)
		return
	}
	values := map[string]any{}
	if err := toml.Unmarshal(data, &values); err != nil {
		l.problem("%s: %w", name, err)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch s := l.find(key); {
		case key == regionsKey:
			l.regions(values[key], name)
		case s == nil:
			l.problem("%s: unknown setting %s; docs/configuration.md lists all", name, key)
		default:
			l.set(s, values[key], name)
		}
	}
}

// regions reads the tables [regions.<label>] of the configuration file into the map of regions. Load checks the regions
// together with the other settings.
func (l *loader) regions(value any, name string) {
	tables, ok := value.(map[string]any)
	if !ok {
		l.problem("%s: regions must be tables such as [regions.us-east-1]", name)
		return
	}
	l.config.Regions = map[string]Region{}
	for _, label := range slices.Sorted(maps.Keys(tables)) {
		table, ok := tables[label].(map[string]any)
		if !ok {
			l.problem("%s: regions.%s must be a table, [regions.%s]", name, label, label)
			continue
		}
		var r Region
		v := reflect.ValueOf(&r).Elem()
		for _, key := range slices.Sorted(maps.Keys(table)) {
			text, isText := table[key].(string)
			i := slices.IndexFunc(slices.Collect(v.Type().Fields()),
				func(f reflect.StructField) bool { return f.Tag.Get("toml") == key })
			switch {
			case i < 0:
				l.problem("%s: unknown setting regions.%s.%s", name, label, key)
			case !isText:
				l.problem("%s: regions.%s.%s must be a text", name, label, key)
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
	if err := assign(s.value, value); err != nil {
		l.problem("%s (%s): %w", s.key, origin, err)
	}
}

// assign converts a string or a value from the configuration file to the setting's type. In a string, commas separate
// the items of a list.
func assign(v reflect.Value, value any) error {
	if v.Kind() == reflect.Slice {
		items, ok := value.([]any)
		if !ok {
			for part := range strings.SplitSeq(fmt.Sprint(value), ",") {
				if part = strings.TrimSpace(part); part != "" {
					items = append(items, part)
				}
			}
		}
		list := reflect.MakeSlice(v.Type(), len(items), len(items))
		for i, item := range items {
			if err := assign(list.Index(i), item); err != nil {
				return err
			}
		}
		v.Set(list)
		return nil
	}
	switch value.(type) {
	case string, int64, float64, bool:
		return assignText(v, strings.TrimSpace(fmt.Sprint(value)))
	}
	return errors.New("must be a single value, not a list, table or date")
}

func assignText(v reflect.Value, text string) error {
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
			return fmt.Errorf("%q is not a whole number", text)
		}
		v.SetInt(int64(n))
	case reflect.Float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetFloat(n)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(b)
	default:
		panic("config: a setting of type " + v.Type().String())
	}
	return nil
}
