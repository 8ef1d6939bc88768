package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/front/docsite"
	"github.com/postrider/postrider/internal/lib/config"
)

// commandSection is the section of the documentation with the commands.
const commandSection = "Command line"

// Reference returns the pages of the documentation that describe the commands: one for each command with its
// subcommands, and one that lists them.
func Reference() []docsite.Page {
	all := []docsite.Page{{Path: "cli", Title: "Commands", Section: commandSection,
		Summary: "all commands, and what they have in common", Content: markdownOf(listOfCommands)}}
	for _, c := range referenced() {
		all = append(all, docsite.Page{Path: "cli/" + c.name(), Title: "postrider " + c.name(), Label: c.name(),
			Section: commandSection, Group: c.group, Summary: c.short,
			Content: markdownOf(func() string { return manualOf(c.name()) })})
	}
	return all
}

func markdownOf(text func() string) func() (docsite.Content, error) {
	return func() (docsite.Content, error) { return docsite.Content{Markdown: text()}, nil }
}

// referenced returns all commands in the order of the help.
func referenced() []command {
	p := newProgram(newEnv(nil, io.Discard, io.Discard))
	slices.SortStableFunc(p.commands, func(a, b command) int {
		return slices.Index(groups, a.group) - slices.Index(groups, b.group)
	})
	return p.commands
}

// listOfCommands returns the page that lists the commands.
func listOfCommands() string {
	var b strings.Builder
	b.WriteString("# Commands\n\nThe program has these commands. `postrider help COMMAND` describes each of them, and " +
		"`postrider help COMMAND --all` lists the flags of all settings.\n")
	for _, title := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n| command | what it does |\n| --- | --- |\n", title)
		for _, c := range referenced() {
			if c.group == title {
				fmt.Fprintf(&b, "| [`postrider %s`](cli/%s.md) | %s |\n", c.name(), c.name(), inMarkdown(c.short))
			}
		}
	}
	b.WriteString(`
## What all commands have in common

- Each setting is a flag, too: the setting ` + "`data_dir`" + ` is the flag ` + "`--data-dir`" + `.
  [Configuration](configuration.md) lists the settings, and says where else they can be set.
- Data goes to standard output. Errors, notes and logs go to standard error.
- With ` + "`--json`" + `, the result and errors are JSON.
- The exit code is 0 after success, 1 after a failure, and 2 if the arguments are wrong.
- [Completion](cli/completion.md) makes the shell complete commands and flags.
`)
	return b.String()
}

// manualOf returns the page of a command. It looks the command up by its name, because the page is rarely read and the
// descriptions of all commands take memory.
func manualOf(name string) string {
	all := referenced()
	c := &all[slices.IndexFunc(all, func(c command) bool { return c.name() == name })]
	var b strings.Builder
	fmt.Fprintf(&b, "# postrider %s\n\n%s\n", c.name(), inMarkdown(c.long))
	describeUse(&b, c, "postrider ", c.source)
	for i := range c.sub {
		sub := &c.sub[i]
		fmt.Fprintf(&b, "\n## postrider %s %s\n\n%s\n", c.name(), sub.name(), inMarkdown(sub.long))
		source := sub.source
		if source == nil {
			source = c.source
		}
		describeUse(&b, sub, "postrider "+c.name()+" ", source)
	}
	return b.String()
}

// describeUse writes how a command is used: its arguments, flags and an example. The text before is what comes before
// the command's name.
func describeUse(b *strings.Builder, c *command, before string, source *config.Source) {
	if c.define == nil {
		return
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	c.define(flags)
	if !c.plain {
		flags.Bool("json", false, "print the result and errors as JSON")
	}
	use := before + c.use
	if flags.HasFlags() || source != nil {
		use += " [flags]"
	}
	fmt.Fprintf(b, "\n```text\n%s\n```\n\nExample:\n\n```sh\n%s\n```\n", use, strings.TrimSpace(c.example))
	if flags.HasFlags() {
		b.WriteString("\n| flag | meaning | default |\n| --- | --- | --- |\n")
	}
	flags.VisitAll(func(f *pflag.Flag) {
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if value != "" {
			name += " " + value
		}
		standard := ""
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" && f.DefValue != "0s" {
			standard = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, inMarkdown(usage), standard)
	})
	if source == nil {
		return
	}
	usual := c.usual
	if usual == nil {
		usual = usualFlags
	}
	fmt.Fprintf(b, "\nUsual [settings](../configuration.md), which are flags, too: `--%s`.\n",
		strings.Join(usual, "`, `--"))
}

var markdownEscapes = strings.NewReplacer("<", `\<`, "*", `\*`, "|", `\|`, "[", `\[`)

// inMarkdown returns a text of the help as Markdown. Code in backticks stays as it is.
func inMarkdown(text string) string {
	parts := strings.Split(text, "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = markdownEscapes.Replace(parts[i])
	}
	return strings.Join(parts, "`")
}
