package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/node"
)

func configCommand() command {
	return command{use: "config", group: groupStart, source: ofNode, short: "show and check the settings",
		long: "Shows and checks the settings that `serve` would use with the same flags and variables, in the same " +
			"folder. Neither subcommand opens a database or creates a folder.",
		example: "postrider config check\npostrider config show --changed",
		sub: []command{
			{use: "check", short: "report all wrong settings and files, and the features that are off",
				long: "Reads the settings as `serve` would, and prints everything that is wrong with them, each with its " +
					"place and what to write instead. If they are valid, it also reads the certificates and the other files " +
					"that they name. If nothing is wrong, it prints the features that are off with the effects. The exit " +
					"code is 1 if a node would not start.",
				example: "postrider config check --config /etc/postrider/postrider.toml",
				define:  simple(checkSettings)},
			{use: "show", short: "show each setting with its value and where the value comes from",
				long: "Prints each setting with its value and the source of the value: the default, a file with its line, a " +
					"variable, a flag, or derived from other settings or the machine. Secrets and the user names of relays are only " +
					"shown as set. Passwords and the values of parameters in URLs are replaced.",
				example: "postrider config show --changed",
				define: func(flags *pflag.FlagSet) runner {
					changed := flags.Bool("changed", false, "only settings that a file, a variable or a flag sets")
					return func(_ context.Context, e *env, _ []string) error { return showSettings(e, *changed) }
				}},
		}}
}

// checkSettings prints the problems of the settings and of the files that they name, or else the features that are off.
func checkSettings(_ context.Context, e *env, _ []string) error {
	loaded, err := e.read()
	problems := config.Problems(err)
	if err != nil && problems == nil {
		return err
	}
	var warnings []*config.Problem
	if err == nil {
		problems, warnings = checkFiles(loaded)
	}
	result := checkObject{Valid: len(problems) == 0, Problems: problemObjects(problems),
		Warnings: problemObjects(warnings), Features: []featureObject{}}
	if result.Valid {
		for _, f := range node.Features(loaded.Config) {
			o := featureObject{Name: f.Name, On: f.On}
			if !f.On {
				o.Effect = &f.Effect
			}
			result.Features = append(result.Features, o)
		}
	}
	if err := e.print(result, func(w io.Writer) error { return result.write(w, problems, warnings) }); err != nil {
		return err
	}
	if !result.Valid {
		return errReported
	}
	return nil
}

// checkFiles returns the problems of the files that valid settings name, and those that do not keep a node from
// starting, with the places of the settings.
func checkFiles(loaded config.Loaded) (problems, warnings []*config.Problem) {
	places := map[string]string{}
	for _, v := range loaded.Values {
		places[v.Key] = v.Place
	}
	for _, f := range node.CheckFiles(loaded.Config) {
		table := f.Setting[:max(strings.LastIndexByte(f.Setting, '.'), 0)] // of a relay
		p := config.NewProblem(f.Setting, cmp.Or(places[f.Setting], places[table]), f.Err)
		if f.Warning {
			warnings = append(warnings, p)
		} else {
			problems = append(problems, p)
		}
	}
	return problems, warnings
}

// checkObject is the result of a check in JSON.
type checkObject struct {
	Valid    bool            `json:"valid"`
	Problems []problemObject `json:"problems"`
	Warnings []problemObject `json:"warnings"` // a node starts nevertheless
	Features []featureObject `json:"features"` // none if a setting is wrong
}

type featureObject struct {
	Name   string  `json:"name"`
	On     bool    `json:"on"`
	Effect *string `json:"effect"` // of a feature that is off
}

// write writes the problems and warnings, or else the features that are off.
func (o checkObject) write(w io.Writer, problems, warnings []*config.Problem) error {
	for _, p := range problems {
		fmt.Fprintln(w, p)
	}
	if o.Valid {
		fmt.Fprintln(w, "the settings are valid")
	}
	for _, p := range warnings {
		fmt.Fprintln(w, "warning: "+p.Error())
	}
	for _, f := range o.Features {
		if !f.On {
			fmt.Fprintf(w, "off: %s: %s\n", f.Name, *f.Effect)
		}
	}
	return nil
}

// settingObject is a setting in JSON.
type settingObject struct {
	Setting string  `json:"setting"`
	Value   string  `json:"value"`
	Source  string  `json:"source"` // default, file, variable, flag or derived
	Place   *string `json:"place"`
}

// showSettings prints the settings, or only those that a source other than the defaults sets.
func showSettings(e *env, changed bool) error {
	loaded, err := e.read()
	if err != nil {
		return err
	}
	l := e.list("setting", "value", "source")
	for _, v := range loaded.Values {
		if changed && v.Place == "" {
			continue
		}
		text := config.MaskURLs(v.Text)
		l.add(settingObject{v.Key, text, v.From, nilIfZero(v.Place)}, v.Key, printable(text), cmp.Or(v.Place, v.From))
	}
	return l.end()
}
