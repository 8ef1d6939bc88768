package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/spelling"
	"github.com/postrider/postrider/internal/node"
)

// command describes a command of the program, or a subcommand.
type command struct {
	use     string // name and arguments, as in "rename TEAM NAME"; an argument in brackets may be left out
	short   string // what the command does, in a few words
	long    string // two or three sentences
	example string // lines
	group   string // only for the commands of the program
	plain   bool   // whether the command has no flag --json

	usageExit int // exit code of an error in the arguments; 2 if it is 0

	// source is where the command's settings come from. If it is nil, subcommands use that of their command; a command
	// without any reads no settings.
	source *config.Source
	usual  []string // names of the setting flags that the help always shows; usualFlags if nil

	// define adds the command's own flags, and returns the function that runs the command with its arguments. It is nil
	// for a command that only has subcommands.
	define func(flags *pflag.FlagSet) runner
	sub    []command
}

// runner runs a command after its flags are parsed.
type runner func(ctx context.Context, e *env, words []string) error

// name returns the name of the command without its arguments.
func (c *command) name() string {
	name, _, _ := strings.Cut(c.use, " ")
	return name
}

// words returns the names of the arguments, and the number of those that are needed.
func (c *command) words() (names []string, needed int) {
	for _, name := range strings.Fields(c.use)[1:] {
		bare := strings.Trim(name, "[]")
		if names = append(names, bare); bare == name {
			needed++
		}
	}
	return names, needed
}

// ofNode is the source of the settings of a node and of the commands beside it.
var ofNode = &config.Source{SystemFile: config.SystemFile, SystemVariables: config.SystemVariables}

// settings holds where the settings of the running command come from.
type settings struct {
	source config.Source
	given  map[string]string // flags
}

// config reads the settings of the running command.
func (e *env) config() (config.Config, error) {
	loaded, err := e.read()
	return loaded.Config, err
}

// load reads the settings with the sources of the values.
func (e *env) load() (config.Loaded, error) {
	src := e.settings.source
	src.Given, src.Environ = e.settings.given, e.environ
	return config.Read(src)
}

// read is load for a command that begins. The command and libraries then also see the variables of the system's file,
// such as POSTRIDER_BACKUP_PASSPHRASE and AWS_ACCESS_KEY_ID.
func (e *env) read() (config.Loaded, error) {
	loaded, err := e.load()
	if err != nil {
		return loaded, err
	}
	for name, value := range loaded.Variables {
		if _, set := os.LookupEnv(name); !set {
			if err := os.Setenv(name, value); err != nil {
				return loaded, fmt.Errorf("%s: %w", config.SystemVariables, err)
			}
		}
	}
	of := e.getenv
	e.getenv = func(name string) string { return cmp.Or(of(name), loaded.Variables[name]) }
	return loaded, nil
}

// withSettings returns a runner that reads the settings first.
func withSettings(run func(ctx context.Context, e *env, c config.Config, words []string) error) runner {
	return func(ctx context.Context, e *env, words []string) error {
		c, err := e.config()
		if err != nil {
			return err
		}
		return run(ctx, e, c, words)
	}
}

// action runs with the services of an installation, whose node may be running.
type action = func(ctx context.Context, e *env, n *node.Node, words []string) error

// beside turns the definition of an action into that of a command. Changes are recorded in the audit log under the
// given name of the command, such as "teams create".
func beside(name string, define func(flags *pflag.FlagSet) action) func(flags *pflag.FlagSet) runner {
	return func(flags *pflag.FlagSet) runner {
		act := define(flags)
		return withSettings(func(ctx context.Context, e *env, c config.Config, words []string) error {
			n, err := openBeside(ctx, c, e)
			if err != nil {
				return err
			}
			defer n.Close()
			return act(recorded(ctx, name), e, n, words)
		})
	}
}

// noFlags is the definition of an action without flags of its own.
func noFlags(act action) func(*pflag.FlagSet) action {
	return func(*pflag.FlagSet) action { return act }
}

// simple is the definition of a command without flags of its own.
func simple(run runner) func(*pflag.FlagSet) runner {
	return func(*pflag.FlagSet) runner { return run }
}

// program is the tree of all commands.
type program struct {
	e        *env
	root     *cobra.Command
	commands []command
	known    map[*cobra.Command]*known
}

// known is what the program knows about a cobra command.
type known struct {
	*command
	runner runner // nil until the flags are added
}

func init() {
	cobra.EnableCommandSorting = false // the lists are in the order of this package
}

// newProgram builds the tree of commands for one run of the program.
func newProgram(e *env) *program {
	p := &program{e: e, known: map[*cobra.Command]*known{}}
	p.root = &cobra.Command{Use: "postrider", SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}}
	p.root.RunE = func(_ *cobra.Command, words []string) error {
		if len(words) > 0 {
			return p.unknown(p.root, words[0])
		}
		p.help(p.root, false)
		return nil
	}
	p.root.SetOut(e.out)
	p.root.SetErr(e.errOut)
	p.root.PersistentFlags().BoolP("help", "h", false, "show the help")
	p.root.PersistentFlags().Bool("all", false, "with --help: show the flags of all settings")
	p.root.SetFlagErrorFunc(p.flagError)
	p.root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		all, err := c.Flags().GetBool("all")
		p.help(c, err == nil && all)
	})
	for _, title := range groups {
		p.root.AddGroup(&cobra.Group{ID: title, Title: title})
	}
	p.commands = append(commands(), completionCommand(p.root), p.helpCommand())
	for i := range p.commands {
		c := p.add(p.root, &p.commands[i], nil)
		if c.Name() == "help" {
			p.root.SetHelpCommand(c)
		}
	}
	return p
}

// add adds a command and its subcommands. Their flags are added later, because each command has a hundred of them.
func (p *program) add(parent *cobra.Command, d *command, source *config.Source) *cobra.Command {
	if d.source == nil {
		d.source = source
	}
	c := &cobra.Command{Use: d.use, Short: d.short, GroupID: d.group, Args: cobra.ArbitraryArgs,
		ValidArgsFunction: completeWords(d)}
	c.RunE = func(_ *cobra.Command, words []string) error { return p.runCommand(c, words) }
	c.Flags().SortFlags = false
	p.known[c] = &known{command: d}
	parent.AddCommand(c)
	for i := range d.sub {
		p.add(c, &d.sub[i], d.source)
	}
	return c
}

// run finds the command in the arguments and runs it.
func (p *program) run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == "--version" {
		args = append([]string{"version"}, args[1:]...)
	}
	named := args
	completes := len(args) > 1 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
	if completes {
		named = args[1 : len(args)-1]
	}
	if c, rest, err := p.root.Find(named); err == nil {
		p.prepare(c)
		// A wrong word is said to be wrong before its flags are.
		if k := p.known[c]; !completes && (k == nil || k.define == nil) && len(rest) > 0 && rest[0] != "help" &&
			!strings.HasPrefix(rest[0], "-") {
			return &commandError{c.CommandPath(), p.unknown(c, rest[0])}
		}
	}
	p.root.SetArgs(args)
	c, err := p.root.ExecuteContextC(ctx)
	if err == nil {
		return nil
	}
	if _, isUsage := errors.AsType[usageError](err); isUsage && p.known[c] != nil && p.known[c].usageExit != 0 {
		err = &exitError{p.known[c].usageExit, err}
	}
	return &commandError{c.CommandPath(), err}
}

// prepare adds the flags of a command.
func (p *program) prepare(c *cobra.Command) {
	k := p.known[c]
	if k == nil || k.runner != nil || k.define == nil {
		return
	}
	k.runner = k.define(c.Flags())
	if !k.plain {
		c.Flags().BoolVar(&p.e.json, "json", p.e.json, "print the result and errors as JSON")
	}
	c.Flags().VisitAll(func(f *pflag.Flag) { completeFlag(c, f) })
	if k.source == nil {
		return
	}
	p.e.settings = settings{*k.source, map[string]string{}}
	for _, s := range k.source.Flags() {
		f := &pflag.Flag{Name: s.Name, Usage: s.Doc, Value: settingValue{s, p.e.settings.given},
			Annotations: map[string][]string{settingMark: {}}}
		if s.Default != "" {
			f.Usage += " (default " + s.Default + ")"
		}
		if s.IsBool {
			f.NoOptDefVal = "true"
		}
		c.Flags().AddFlag(f)
		completeSetting(c, s)
	}
}

// settingMark is the annotation of the flags of settings.
const settingMark = "setting"

func isSetting(f *pflag.Flag) bool { return f.Annotations[settingMark] != nil }

// settingValue notes the value of a setting's flag.
type settingValue struct {
	flag  config.Flag
	given map[string]string
}

func (v settingValue) String() string        { return v.given[v.flag.Name] }
func (v settingValue) Set(text string) error { v.given[v.flag.Name] = text; return nil }

// Type returns the name of the value in the help.
func (v settingValue) Type() string {
	if v.flag.IsBool {
		return "bool"
	}
	return strings.TrimPrefix(v.flag.Kind, "whole ")
}

// runCommand checks the arguments of a command and runs it.
func (p *program) runCommand(c *cobra.Command, words []string) error {
	d := p.known[c]
	names, needed := d.words()
	switch {
	case c.Flags().Changed("all") && d.name() != "help":
		return usagef("--all belongs to the help: %s --help --all", c.CommandPath())
	case len(words) == 1 && words[0] == "help" && len(names) == 0:
		p.help(c, false)
		return nil
	case len(d.sub) > 0 && (len(words) > 0 || d.runner == nil):
		if len(words) == 0 {
			return usagef("the subcommand is missing: %s", strings.Join(d.subNames(), ", "))
		}
		return p.unknown(c, words[0])
	case len(words)+1 < needed:
		return usagef("%s are missing", strings.Join(names[len(words):needed], " and "))
	case len(words) < needed:
		return usagef("%s is missing", names[len(words)])
	case len(words) > len(names):
		return unexpected(c, words[len(names)])
	}
	return d.runner(c.Context(), p.e, words)
}

// unexpected returns the error about an argument that a command does not take. It may be the value of a flag that is
// true or false: pflag takes such a value only after an equals sign.
func unexpected(c *cobra.Command, word string) error {
	var set []string
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "bool" && f.Name != "json" {
			set = append(set, f.Name)
		}
	})
	if (word == "true" || word == "false") && len(set) == 1 {
		return usagef("unexpected argument %q: write --%s=%s", word, set[0], word)
	}
	return usagef("unexpected argument %q: put values with spaces in quotes", word)
}

func (c *command) subNames() (names []string) {
	for i := range c.sub {
		names = append(names, c.sub[i].name())
	}
	return names
}

// unknown returns the error about a word that names no command, or no subcommand of c.
func (p *program) unknown(c *cobra.Command, word string) error {
	what := "subcommand"
	list := &command{sub: p.commands}
	if d := p.known[c]; d != nil {
		list = d.command
	} else {
		what = "command"
	}
	if nearest := spelling.Nearest(word, list.subNames()); nearest != "" {
		return usagef("unknown %s %q; did you mean %s?", what, word, nearest)
	}
	if what == "command" {
		return usagef("unknown command %q", word)
	}
	if len(list.sub) == 0 {
		return usagef("%s has no subcommands", list.name())
	}
	return usagef("unknown subcommand %q; use one of %s", word, strings.Join(list.subNames(), ", "))
}

// flagError describes an error of the flags of c.
func (p *program) flagError(c *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		given, name := "--"+unknown.GetSpecifiedName(), unknown.GetSpecifiedName()
		if short := unknown.GetSpecifiedShortnames(); short != "" {
			given, name = "-"+short, short
		}
		name, _, _ = strings.Cut(name, "=")
		var flags []string
		c.Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
		if nearest := spelling.Nearest(name, flags); nearest != "" {
			return usagef("unknown flag %s; did you mean --%s?", strings.SplitN(given, "=", 2)[0], nearest)
		}
		return usagef("unknown flag %s", strings.SplitN(given, "=", 2)[0])
	}
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return usagef("--%s needs a value", missing.GetFlag().Name)
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f, value := wrong.GetFlag(), wrong.GetValue()
		switch f.Value.Type() {
		case "int", "int64":
			return usagef("--%s: %q is not a whole number; write it as --%s 10", f.Name, value, f.Name)
		case "bool":
			return usagef("--%s: %q is neither true nor false", f.Name, value)
		}
		return usagef("--%s: %v", f.Name, errors.Unwrap(wrong))
	}
	return usageError(err.Error())
}
