package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the number of columns of help.
const helpWidth = 100

// usualFlags are the setting flags that the help of a command beside a node shows. --all shows the others.
var usualFlags = []string{"config", "data-dir", "database-url", "secret-key", "log-level"}

// help prints the help of a command, or of the program if c is the root. It shows the flags of all settings, or only
// the usual ones.
func (p *program) help(c *cobra.Command, all bool) {
	k := p.known[c]
	if k == nil {
		p.overview()
		return
	}
	p.prepare(c)
	w := p.e.out
	fmt.Fprintf(w, "%s\n\n", wrapText(k.long, helpWidth))
	if k.define != nil {
		usage := c.CommandPath() + strings.TrimPrefix(k.use, k.name())
		if c.HasAvailableLocalFlags() {
			usage += " [flags]"
		}
		fmt.Fprintf(w, "Use: %s\n", usage)
	}
	if len(k.sub) > 0 {
		fmt.Fprintf(w, "Use: %s SUBCOMMAND [flags]\n\nSubcommands:\n", c.CommandPath())
		listCommands(w, k.sub, func(d *command) string { return d.use })
		fmt.Fprintln(w)
	} else {
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "Example:\n%s\n", indent(k.example))
	p.helpFlags(w, c, k.command, all)
	if len(k.sub) > 0 {
		fmt.Fprintf(w, "\n`postrider help %s SUBCOMMAND` describes a subcommand and its flags.\n", k.name())
	}
}

// helpFlags prints the flags of a command.
func (p *program) helpFlags(w io.Writer, c *cobra.Command, d *command, all bool) {
	own, shown := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags, shown.SortFlags = false, false
	usual := d.usual
	if usual == nil {
		usual = usualFlags
	}
	hidden := 0
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case !isSetting(f):
			plain := *f
			plain.Value = helpValue{f.Value}
			own.AddFlag(&plain)
		case all:
			shown.AddFlag(f)
		case slices.Contains(usual, f.Name):
			short := *f
			short.Usage = firstSentence(f.Usage)
			shown.AddFlag(&short)
		default:
			hidden++
		}
	})
	if own.HasFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", own.FlagUsagesWrapped(helpWidth))
	}
	if shown.HasFlags() {
		fmt.Fprintf(w, "\nSettings, which the configuration file and variables can set too:\n%s",
			shown.FlagUsagesWrapped(helpWidth))
	}
	if hidden > 0 {
		fmt.Fprintf(w, "\nThe other %d settings are flags too: `%s --help --all` lists them.\n", hidden, c.CommandPath())
	}
}

// helpValue hides from pflag that a flag may have no value, so that the help says --json and not --json[=true|false].
type helpValue struct{ pflag.Value }

// firstSentence shortens a description of a setting to its first sentence and its default.
func firstSentence(text string) string {
	first, rest, cut := strings.Cut(text, ". ")
	if !cut {
		return text
	}
	if i := strings.LastIndex(rest, " (default "); i >= 0 {
		return first + "." + rest[i:]
	}
	return first + "."
}

// overview prints the commands in their groups.
func (p *program) overview() {
	w := p.e.out
	fmt.Fprint(w, "Postrider is an email platform that you run yourself.\n\nUse: postrider COMMAND [flags]\n")
	for _, title := range groups {
		fmt.Fprintf(w, "\n%s:\n", title)
		listCommands(w, slices.DeleteFunc(slices.Clone(p.commands), func(d command) bool { return d.group != title }),
			(*command).name)
	}
	fmt.Fprint(w, "\nStart with: postrider dev\n`postrider help COMMAND` describes a command and its flags. "+
		"docs/configuration.md lists the settings.\n")
}

// listCommands prints commands with what they do, in two columns.
func listCommands(w io.Writer, list []command, title func(*command) string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range list {
		fmt.Fprintf(t, "  %s\t%s\n", title(&list[i]), list[i].short)
	}
	t.Flush()
}

// wrapText breaks a text into lines of at most width columns. Empty lines stay.
func wrapText(text string, width int) string {
	var b strings.Builder
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.WriteString("\n\n")
		}
		column := 0
		for word := range strings.FieldsSeq(paragraph) {
			switch {
			case column == 0:
			case column+1+len(word) > width:
				b.WriteByte('\n')
				column = 0
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += len(word)
		}
	}
	return b.String()
}

// indent puts two spaces before each line.
func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
}

// helpCommand is the command help, which needs the other commands.
func (p *program) helpCommand() command {
	return command{
		use: "help [COMMAND] [SUBCOMMAND]", plain: true, group: groupTools, short: "describe a command and its flags",
		long: "Prints what a command does, an example, its own flags and the usual settings. With --all, it shows the " +
			"flags of all settings. Without a command, it lists the commands.",
		example: "postrider help teams create\npostrider help serve --all",
		define: func(flags *pflag.FlagSet) runner {
			return func(_ context.Context, _ *env, words []string) error {
				c, rest, err := p.root.Find(words)
				if err != nil {
					return err
				}
				if len(rest) > 0 {
					return p.unknown(c, rest[0])
				}
				all, err := flags.GetBool("all")
				if err != nil {
					return err
				}
				p.help(c, all)
				return nil
			}
		},
	}
}
