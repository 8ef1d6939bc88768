package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/lib/config"
)

// completionCommand is the command that prints the completion script of a shell. The script asks the program for the
// words that may follow.
func completionCommand(root *cobra.Command) command {
	scripts := map[string]func(w io.Writer) error{
		"bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh":  root.GenZshCompletion,
		"fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	}
	return command{
		use: "completion SHELL", plain: true, group: groupTools, short: "print the completion script for bash, zsh or fish",
		long: "Prints a script that makes the shell complete commands, flags and values. SHELL is bash, zsh or fish. The " +
			"packages install the scripts.",
		example: "postrider completion bash >/usr/share/bash-completion/completions/postrider\n" +
			"postrider completion zsh >/usr/share/zsh/vendor-completions/_postrider\n" +
			"postrider completion fish >/usr/share/fish/vendor_completions.d/postrider.fish",
		define: simple(func(_ context.Context, e *env, words []string) error {
			write := scripts[words[0]]
			if write == nil {
				return usagef("the shell %q is not known; use bash, zsh or fish", words[0])
			}
			return write(e.out)
		}),
	}
}

// completeWords returns the function that completes the arguments of a command. Subcommands are completed by cobra.
func completeWords(d *command) cobra.CompletionFunc {
	names, _ := d.words()
	return func(_ *cobra.Command, words []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(words) >= len(names) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		switch names[len(words)] {
		case "FILE":
			return nil, cobra.ShellCompDirectiveDefault
		case "SHELL":
			return []string{"bash", "zsh", "fish"}, cobra.ShellCompDirectiveNoFileComp
		case "COMMAND":
			var all []string
			for _, c := range commands() {
				all = append(all, c.name()+"\t"+c.short)
			}
			return all, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// choicesMark is the annotation of a flag with the values that it accepts.
const choicesMark = "choices"

// oneOf notes the values that a flag accepts, for completion. The command checks them.
func oneOf(flags *pflag.FlagSet, name string, values ...string) {
	if err := flags.SetAnnotation(name, choicesMark, values); err != nil {
		panic(err) // no such flag
	}
}

// completeFlag completes the values of a command's own flag: its choices, or files if its value is a file.
func completeFlag(c *cobra.Command, f *pflag.Flag) {
	kind, _ := pflag.UnquoteUsage(f)
	complete := cobra.NoFileCompletions
	if values := f.Annotations[choicesMark]; values != nil {
		complete = cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	} else if kind == "file" {
		return // the shell completes files
	}
	if err := c.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
		panic(err)
	}
}

// completeSetting completes the values of a setting's flag.
func completeSetting(c *cobra.Command, s config.Flag) {
	complete := cobra.NoFileCompletions
	switch {
	case s.Choices != nil && s.Kind == "list":
		complete = completeList(s.Choices)
	case s.Choices != nil:
		complete = cobra.FixedCompletions(s.Choices, cobra.ShellCompDirectiveNoFileComp)
	case s.IsBool:
		complete = cobra.FixedCompletions([]string{"true", "false"}, cobra.ShellCompDirectiveNoFileComp)
	case s.Name == "data-dir":
		complete = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	case s.Name == "config" || strings.HasSuffix(s.Name, "-file") || s.Name == "acme-dns-hook":
		return // the shell completes files
	}
	if err := c.RegisterFlagCompletionFunc(s.Name, complete); err != nil {
		panic(err)
	}
}

// completeList completes the last item of a list that is separated by commas.
func completeList(items []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, text string) (all []cobra.Completion, _ cobra.ShellCompDirective) {
		before := text[:strings.LastIndexByte(text, ',')+1]
		for _, item := range items {
			if !strings.Contains(","+before, ","+item+",") {
				all = append(all, before+item)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}
